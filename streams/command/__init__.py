"""The command line of an app: `python app.py worker`, and `python -m isthmus.streams -A module worker`."""
