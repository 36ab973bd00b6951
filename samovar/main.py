"""The `samovar` command: one entry point, its commands, and the one place where problems become exit codes."""

from __future__ import annotations

import os
import sys

import click

from samovar.commands.change import delete, rollback
from samovar.commands.deploy import deploy
from samovar.commands.init import init
from samovar.commands.invoke import invoke
from samovar.commands.logs import logs
from samovar.commands.look import explain, list_functions, ps, show
from samovar.commands.token import token
from samovar.commands.up import up
from samovar.commands.usage import usage
from samovar.output import json_text, note, paint
from samovar.problems import Problem, WrongUsage

#: As a shell reports a process that a signal ended.
_INTERRUPTED, _BROKEN_PIPE = 130, 141


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="NAME is `function` or `namespace/function`. A local `samovar up` of yours is found by itself; "
    "other gateways: set SAMOVAR_URL and SAMOVAR_TOKEN.",
)
@click.version_option(package_name="samovar")
def cli() -> None:
    """Functions kept warm: deploy a handler, call it over HTTP, pay for what ran."""


for _command in (
    init, deploy, invoke, list_functions, show, logs, ps, usage, delete, rollback, explain, token, up,
):  # fmt: skip
    cli.add_command(_command)


def main() -> None:
    """Entry point: runs the command line and exits."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Runs one command; gives its exit code (see samovar.problems)."""
    as_json = "--json" in arguments
    try:
        result = cli.main(args=arguments, prog_name="samovar", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return WrongUsage.exit_code
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "samovar"
        return _report(WrongUsage(error.format_message(), hint=f"see `{command} --help`"), as_json)
    except click.ClickException as error:
        return _report(WrongUsage(error.format_message()), as_json)
    except Problem as problem:
        return _report(problem, as_json)
    except (KeyboardInterrupt, click.Abort):
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader (`head`, say) has seen enough; Python must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE


def _report(problem: Problem, as_json: bool) -> int:
    if as_json:
        note(json_text(problem.as_dict()))
    else:
        note(f"{paint('error:', 'red', sys.stderr)} {problem.message}")
        if problem.hint:
            note(f"  {problem.hint}")
    return problem.exit_code


if __name__ == "__main__":
    main()
