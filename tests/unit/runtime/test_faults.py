"""Exceptions as text: the researcher's frames only, bounded, and never an exception of its own."""

from __future__ import annotations

import json
from pathlib import Path

from runtime.faults import MESSAGE_CHARS_MAX, TRACEBACK_CHARS_MAX, describe
from runtime.loading import LoadError, load_handler


def caught(code: str, path: Path) -> BaseException:
    file = path / "mine.py"
    file.write_text(code)
    try:
        exec(compile(code, str(file), "exec"), {})
    except BaseException as error:
        return error
    raise AssertionError("it did not raise")


def test_the_bundles_files_are_named_from_the_bundle_on(tmp_path: Path) -> None:
    fault = describe(caught("def f():\n    raise ValueError('on purpose')\nf()\n", tmp_path), str(tmp_path))
    assert fault.error_type == "ValueError"
    assert fault.message == "on purpose"
    assert 'File "mine.py", line 2, in f' in fault.traceback
    assert str(tmp_path) not in fault.traceback


def test_frames_of_the_runtime_and_the_import_system_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "broken_mine.py").write_text("import not_there_at_all\n")
    import sys

    sys.path.insert(0, str(tmp_path))
    try:
        load_handler("broken_mine:main", str(tmp_path))
    except LoadError as error:
        assert error.kind == "import_error"
        assert 'File "broken_mine.py", line 1' in error.traceback
        assert "import not_there_at_all" in error.traceback
        assert "loading.py" not in error.traceback
        assert "importlib" not in error.traceback
    finally:
        sys.path.remove(str(tmp_path))


def test_an_exit_names_its_status(tmp_path: Path) -> None:
    assert describe(SystemExit(3), "/b").message == "the handler asked to exit with status 3"
    assert describe(SystemExit(), "/b").message == "the handler asked to exit with status 0"
    assert "status 1 (gone wrong)" in describe(SystemExit("gone wrong"), "/b").message


class Evil(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_an_exception_that_cannot_be_printed_is_still_told() -> None:
    fault = describe(Evil(), "/b")
    assert fault.error_type == "Evil"
    assert "RuntimeError" in fault.message


def test_text_is_bounded_and_free_of_lone_surrogates() -> None:
    fault = describe(ValueError("\ud800" + "x" * 1_000_000), "/b")
    assert len(fault.message) < MESSAGE_CHARS_MAX + 200
    assert len(fault.traceback) < TRACEBACK_CHARS_MAX + 200
    json.dumps(fault).encode()
    fault.message.encode()
    fault.traceback.encode()


def test_causes_keep_their_own_frames(tmp_path: Path) -> None:
    code = "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise ValueError('second') from error\n"
    text = describe(caught(code, tmp_path), str(tmp_path)).traceback
    assert text.count('File "mine.py"') == 2
    assert "ZeroDivisionError" in text
