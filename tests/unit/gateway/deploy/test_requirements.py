"""Requirements have one spelling, and it names the environment."""

from __future__ import annotations

import pytest

from gateway.deploy.environments import digest_of
from gateway.deploy.interpreters import Interpreter, uv_environment
from gateway.deploy.requirements import normalised

PYTHON = Interpreter("/usr/bin/python3.11", "3.11.7")


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("NumPy", "numpy"),
        (" numpy >= 2.0 , < 3 ", "numpy<3,>=2.0"),
        ("Foo__Bar.baz", "foo-bar-baz"),
        ("uvicorn[Standard , extra]==0.30.*", "uvicorn[extra,standard]==0.30.*"),
        ("x (>=1)", "x>=1"),
        ('x>=1;python_version  < "3.13"', 'x>=1 ; python_version < "3.13"'),
        ("x @ https://example.org/x-1-py3-none-any.whl", "x @ https://example.org/x-1-py3-none-any.whl"),
    ],
)
def test_a_requirement_has_one_spelling(text: str, spelled: str) -> None:
    assert normalised(text) == spelled
    assert normalised(spelled) == spelled


REFUSED = [
    "", "-e .", "--index-url x", "./x", "/x", "x y", "x>=", "x @ file:///x", "x @ git+ssh://h/x", "x @ http://h/x",
    "x\n-r y", "x>=1 --hash=sha256:0", "https://example.org/x.whl", "x[a", "é", "x" * 2000,
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_plain_requirement_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        normalised(text)


def test_equal_requirements_have_an_equal_digest() -> None:
    assert digest_of(["a", "b"], PYTHON) == digest_of(["b", "a"], PYTHON)
    digests = {
        digest_of(["a", "b"], PYTHON),
        digest_of(["a", "b>1"], PYTHON),
        digest_of(["a", "b"], Interpreter(PYTHON.path, "3.11.8")),
        digest_of(["a", "b"], Interpreter("/opt/python", PYTHON.version)),
    }
    assert len(digests) == 4


def test_uv_gets_the_operators_index_and_none_of_our_secrets() -> None:
    inherited = {"PATH": "/bin", "https_proxy": "p", "UV_INDEX_URL": "i", "UV_PYTHON": "3.9", "SAMOVAR_TOKEN": "s"}
    given = uv_environment(inherited | {"VIRTUAL_ENV": "/v", "UV_PYTHON_DOWNLOADS": "automatic", "PGPASSWORD": "x"})
    assert {"PATH", "https_proxy", "UV_INDEX_URL"} <= given.keys()
    assert not {"UV_PYTHON", "SAMOVAR_TOKEN", "VIRTUAL_ENV", "PGPASSWORD"} & given.keys()
    assert given["UV_PYTHON_DOWNLOADS"] == "never"
