# mypy: ignore-errors
"""`launched.py PACKAGES MODULE …` runs a module as `python -m` does, with packages behind those of this environment."""

import runpy
import sys

_, packages, module, *arguments = sys.argv
sys.path[0] = ""
sys.path.append(packages)
sys.argv = [module, *arguments]
runpy.run_module(module, run_name="__main__", alter_sys=True)
