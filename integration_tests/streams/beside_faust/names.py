# mypy: ignore-errors
"""Prints the public names of faust-streaming as JSON: those that modules say are public, and attributes of classes."""

from __future__ import annotations

import importlib
import json
from importlib.metadata import version

import faust
from faust import cli, web
from faust.app.router import Router

# By what they are here: errors of pages and codecs have no module of their own.
MODULES = {
    "types": ("types",),
    "web": ("web", "web.exceptions"),
    "cli": ("cli",),
    "serializers": ("serializers",),
    "models": ("models",),
    "utils": ("utils",),
    "contrib.asgi": ("contrib.asgi",),
}
CLASSES = {
    "App": faust.App("names"),  # its attributes, too
    "Agent": faust.Agent,
    "Stream": faust.Stream,
    "Table": faust.Table,
    "Topic": faust.Topic,
    "Event": faust.Event,
    "Record": faust.Record,
    "Service": faust.Service,
    "Worker": faust.Worker,
    "AppCommand": cli.AppCommand,
    "View": web.View,
    "Blueprint": web.Blueprint,
    "Router": Router,
    "Channel": faust.Channel,
    "Schema": faust.Schema,
    "HoppingWindow": faust.HoppingWindow,
    "SetTable": faust.SetTable,
    "GlobalTable": faust.GlobalTable,
}


def main() -> None:
    found = {"version": f"faust-streaming {version('faust-streaming')}", "package": sorted(faust.__all__)}
    for name, modules in MODULES.items():
        found[name] = sorted(
            {each for module in modules for each in importlib.import_module(f"faust.{module}").__all__}
        )
    for name, each in CLASSES.items():
        found[name] = sorted(each for each in dir(each) if not each.startswith("_"))
    print(json.dumps(found))


main()
