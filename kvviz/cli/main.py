"""The command line: the pages' answers without a browser. A command is a function beside this file and a line here."""

import sys
from typing import Any, NoReturn

import typer

from kvviz.base.errors import KvvizError
from kvviz.cli import (
    caches,
    calc,
    cluster,
    experiments,
    files,
    models,
    plan,
    ready,
    run,
    selftest,
    serve,
    static,
    sweep,
)
from kvviz.cli.measure_here import Halted

app = typer.Typer(add_completion=False, no_args_is_help=False, pretty_exceptions_enable=False)
UsageError: Any = typer.BadParameter.__base__  # typer has no public name for it


@app.callback(invoke_without_command=True)
def dashboard(context: typer.Context) -> None:
    """See the KV cache work. Without a command: open the dashboard."""
    if context.invoked_subcommand is None:
        serve.serve()


app.command("serve")(serve.serve)
app.command("models")(models.models)
app.command("calc")(calc.calc)
app.command("probe")(calc.probe)
app.command("plan")(plan.plan)
app.command("cost")(calc.cost)
app.command("run")(run.run)
app.command("export", context_settings={"ignore_unknown_options": True})(files.export)  # an id may begin with a dash
app.command("import")(files.import_)
app.command("sweep")(sweep.sweep)
app.command("ceilings")(experiments.ceilings)
app.command("roofline")(experiments.roofline)
app.command("serving")(experiments.serving)
app.command("caches")(experiments.caches)
app.command("new-cache")(caches.new_cache)
app.command("check-cache")(caches.check_cache)
app.command("recall")(experiments.recall)
app.command("forgetting")(experiments.forgetting)
app.command("endpoint")(experiments.endpoint)
app.command("static")(static.static)
app.command("pull")(models.pull)
app.command("cluster")(cluster.cluster)
app.command("ready")(ready.ready)
app.command("selftest")(selftest.selftest)


def main() -> None:
    """Run the command line: a KvvizError is one line on standard error and exit status 2."""
    try:
        status = app(standalone_mode=False)
    except KvvizError as error:
        _end(str(error), 2)
    except UsageError as error:
        _end(error.format_message(), 2)
    except Halted as halted:
        _end(str(halted), halted.status)
    except (typer.Abort, KeyboardInterrupt):
        raise SystemExit(130) from None
    raise SystemExit(status if isinstance(status, int) else 0)


def _end(sentence: str, status: int) -> NoReturn:
    print(f"kvviz: {' '.join(sentence.split())}", file=sys.stderr)
    raise SystemExit(status)
