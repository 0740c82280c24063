"""The `specgen` command: its subcommands, and the one place where errors become exit codes."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from typer.exceptions import TyperException

from specgen import __version__
from specgen.cli.compare import compare
from specgen.cli.doctor import doctor
from specgen.cli.plan import plan
from specgen.cli.pull import pull
from specgen.cli.report import report
from specgen.cli.run import run
from specgen.cli.worker import worker
from specgen.errors import EXIT_INTERRUPTED, BackendError, SpecgenError, StdoutClosed, UsageError

app = typer.Typer(
    name="specgen",
    help="Local speculative decoding: a small model drafts, a large one verifies, the text stays the same.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
app.command()(run)
app.command()(pull)
app.command()(plan)
app.command()(worker)
app.command()(doctor)
app.command()(compare)
app.command()(report)


def _print_version(is_wanted: bool) -> None:
    if not is_wanted:
        return
    from specgen.cli._output import print_text
    from specgen.llama import library

    try:
        native = library.versions()
    except BackendError as error:
        native = error.message
    print_text(f"specgen {__version__} ({native})")
    raise typer.Exit


@app.callback()
def _specgen(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the versions of specgen and llama.cpp.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line and exit with the code that the outcome calls for."""
    sys.exit(_exit_code())


def _exit_code() -> int:
    """The error boundary: every exception ends here, as two lines and a code."""
    try:
        return int(app(prog_name="specgen", standalone_mode=False) or 0)
    except SpecgenError as error:
        return _fail(error)
    except TyperException as error:
        if not error.format_message().strip():  # the bare command has shown its help
            return error.exit_code
        return _fail(UsageError(error.format_message().rstrip("."), _usage_hint(error)))
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except StdoutClosed:
        return 0
    except Exception as error:
        return _fail(
            SpecgenError(
                f"unexpected {type(error).__name__}: {error}",
                "this is a bug in specgen: run again with SPECGEN_DEBUG=1 and report the traceback",
            ),
            error,
        )


def _fail(error: SpecgenError, cause: BaseException | None = None) -> int:
    from specgen.cli._output import print_error

    if os.environ.get("SPECGEN_DEBUG"):
        import traceback

        traceback.print_exception(cause or error)
    print_error(error)
    return error.exit_code


def _usage_hint(error: TyperException) -> str:
    context = getattr(error, "ctx", None)
    return f"see {context.command_path if context else 'specgen'} --help"
