"""function.toml: what is taken, what is refused, and that a refusal says key, rule and line."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.catalog import MIB, Manifest, Resources, Scale, Timeouts
from gateway.deploy.manifest import parse_manifest
from gateway.errors import BadRequest

SMALL = 'name = "f"\nhandler = "handler:main"\n'


def parse(text: str, requirements_txt: bytes | None = None, namespace: str = "default") -> Manifest:
    return parse_manifest(text.encode(), default_namespace=namespace, requirements_txt=requirements_txt)


def refused(text: str, requirements_txt: bytes | None = None) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        parse(text, requirements_txt)
    return caught.value


def test_the_smallest_manifest_takes_every_default() -> None:
    assert parse(SMALL) == Manifest(name="f", namespace="default", handler="handler:main")


def test_every_key_is_read() -> None:
    manifest = parse(
        """
        name = "thumbs-2"
        namespace = "lab"
        handler = "pkg.web:make.app"
        shape = "asgi"
        python = "3.12"
        requirements = ["Pillow>=10", "numpy"]
        concurrency = 8
        public = true
        max_body = "1.5MiB"
        [env]
        MODEL = "small"
        [timeouts]
        total = "2m"
        first_byte = 1.5
        idle = "500ms"
        start = "90s"
        [resources]
        cpu = 0.5
        memory = "1GiB"
        gpu = "h100"
        gpus = 2
        [scale]
        min = 1
        max = 20
        target = 4.5
        idle_timeout = "2s"
        keep_alive = "fixed"
        """
    )
    assert manifest == Manifest(
        name="thumbs-2",
        namespace="lab",
        handler="pkg.web:make.app",
        shape="asgi",
        python="3.12",
        requirements=("Pillow>=10", "numpy"),
        variables={"MODEL": "small"},
        concurrency=8,
        timeouts=Timeouts(total_s=120, first_byte_s=1.5, idle_s=0.5, start_s=90),
        resources=Resources(cpu_millis=500, memory_bytes=1024 * MIB, gpu="h100", gpus=2),
        scale=Scale(min=1, max=20, target=4.5, idle_timeout_s=2),
        public=True,
        max_body_bytes=1536 * 1024,
    )
    assert Manifest.from_dict(manifest.as_dict()) == manifest


def test_the_namespace_of_the_address_is_the_default() -> None:
    assert parse(SMALL, namespace="lab").namespace == "lab"


def test_the_first_byte_may_take_as_long_as_the_whole_call_unless_said() -> None:
    assert parse(SMALL + '[timeouts]\ntotal = "1h"').timeouts.first_byte_s == 3600
    assert parse(SMALL + "[timeouts]\ntotal = 10").timeouts.first_byte_s == 10


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ('gpu = "1g.10gb"', (0, "1g.10gb", 0)),
        ('gpu = "h200"', (1, "h200", 0)),
        ('gpu_memory = "6GiB"', (0, "", 6 * 1024 * MIB)),
        ('gpu = "a100"\ngpu_memory = "6GiB"', (0, "a100", 6 * 1024 * MIB)),
        ("gpus = 2", (2, "", 0)),
    ],
)
def test_gpus_are_asked_for_by_profile_type_number_or_memory(resources: str, expected: tuple[int, str, int]) -> None:
    read = parse(SMALL + "[resources]\n" + resources).resources
    assert (read.gpus, read.gpu, read.gpu_memory_bytes) == expected


BAD = [
    # text, key, line, words of the rule
    ('handler = "a:b"', "name", 1, "missing"),
    ('name = "f"', "handler", 1, "missing"),
    ('name = "Big"\nhandler = "a:b"', "name", 1, "lower-case"),
    ('name = "-f"\nhandler = "a:b"', "name", 1, "lower-case"),
    (f'name = "{"a" * 64}"\nhandler = "a:b"', "name", 1, "63"),
    ('name = "f\\n"\nhandler = "a:b"', "name", 1, "lower-case"),
    ('name = 3\nhandler = "a:b"', "name", 1, "lower-case"),
    ('name = "f"\nnamespace = "../x"\nhandler = "a:b"', "namespace", 2, "lower-case"),
    ('name = "f"\nhandler = "a"', "handler", 2, "module:attribute"),
    ('name = "f"\nhandler = "a/b:c"', "handler", 2, "module:attribute"),
    ('name = "f"\nhandler = "..a:c"', "handler", 2, "module:attribute"),
    (SMALL + 'shape = "wsgi"', "shape", 3, "'event'"),
    (SMALL + "shape = [1]", "shape", 3, "'event'"),
    (SMALL + 'python = "2.7"', "python", 3, "3.11"),
    (SMALL + 'python = "3.9"', "python", 3, "3.11"),
    (SMALL + "python = 3.12", "python", 3, "such as"),
    (SMALL + "concurency = 3", "concurency", 3, "'concurrency'"),
    (SMALL + "\n\nzzz = 3", "zzz", 5, "there are"),
    (SMALL + '"od d" = 3', "'od d'", 3, "unknown"),
    (SMALL + "concurrency = 0", "concurrency", 3, "1 to 1000"),
    (SMALL + "concurrency = 1001", "concurrency", 3, "1 to 1000"),
    (SMALL + "concurrency = true", "concurrency", 3, "1 to 1000"),
    (SMALL + "concurrency = 1.0", "concurrency", 3, "whole"),
    (SMALL + 'public = "yes"', "public", 3, "true or false"),
    (SMALL + 'max_body = "64"', "max_body", 3, "size"),
    (SMALL + "max_body = 0", "max_body", 3, "size"),
    (SMALL + 'max_body = "1TiB"', "max_body", 3, "64GiB"),
    (SMALL + 'timeouts = "3s"', "timeouts", 3, "table"),
    (SMALL + "[timeouts]\ntotl = 1", "timeouts.totl", 4, "'total'"),
    (SMALL + "[timeouts]\ntotal = 0", "timeouts.total", 4, "100ms"),
    (SMALL + "[timeouts]\ntotal = nan", "timeouts.total", 4, "duration"),
    (SMALL + "[timeouts]\ntotal = inf", "timeouts.total", 4, "duration"),
    (SMALL + f"[timeouts]\ntotal = {'9' * 400}", "timeouts.total", 4, "duration"),
    (SMALL + '[timeouts]\ntotal = "5 parsecs"', "timeouts.total", 4, "duration"),
    (SMALL + '[timeouts]\ntotal = "-5s"', "timeouts.total", 4, "duration"),
    (SMALL + '[timeouts]\ntotal = "5s"\nfirst_byte = "6s"', "timeouts.first_byte", 5, "timeouts.total"),
    (SMALL + '[timeouts]\nidle = "10m"', "timeouts.idle", 4, "timeouts.total"),
    (SMALL + '[timeouts]\nstart = "2h"', "timeouts.start", 4, "1h"),
    (SMALL + "timeouts.start = []", "timeouts.start", 3, "duration"),
    (SMALL + "[resources]\ncpu = -1", "resources.cpu", 4, "number"),
    (SMALL + '[resources]\ncpu = "1"', "resources.cpu", 4, "number"),
    (SMALL + '[resources]\nmemory = "1MiB"', "resources.memory", 4, "16MiB"),
    (SMALL + '[resources]\ngpu = "H100"', "resources.gpu", 4, "lower case"),
    (SMALL + "[resources]\ngpus = 99", "resources.gpus", 4, "0 to 16"),
    (SMALL + '[resources]\ngpus = 1\ngpu_memory = "6GiB"', "resources.gpu_memory", 5, "whole"),
    (SMALL + '[resources]\ngpu = "1g.10gb"\ngpus = 2', "resources.gpus", 5, "one MIG instance"),
    (SMALL + '[resources]\ngpu = "1g.10gb"\ngpu_memory = "6GiB"', "resources.gpu_memory", 5, "1g.10gb"),
    (SMALL + "[scale]\nmin = 3\nmax = 2", "scale.min", 4, "scale.max"),
    (SMALL + "[scale]\nmax = -1", "scale.max", 4, "0 to 10000"),
    (SMALL + "[scale]\ntarget = 2", "scale.target", 4, "concurrency"),
    (SMALL + '[scale]\nkeep_alive = "ever"', "scale.keep_alive", 4, "'fixed'"),
    (SMALL + "[scale]\nidle_timeout = false", "scale.idle_timeout", 4, "duration"),
    (SMALL + "env = 3", "env", 3, "table"),
    (SMALL + "[env]\nA = 3", "env.A", 4, "quotes"),
    (SMALL + '[env]\nA = "x"\n"a-b" = "y"', "env.a-b", 5, "letters"),
    (SMALL + '[env]\nSAMOVAR_X = "y"', "env.SAMOVAR_X", 4, "platform"),
    (SMALL + '[env]\nHOME = "/root"', "env.HOME", 4, "platform"),
    (SMALL + '[env]\nA = "a\\u0000b"', "env.A", 4, "zero byte"),
    (SMALL + f'[env]\nA = "{"x" * 40000}"', "env.A", 4, "32768"),
    (SMALL + 'requirements = "numpy"', "requirements", 3, "list"),
    (SMALL + "requirements = [1]", "requirements", 3, "texts"),
    (SMALL + 'requirements = [\n  "numpy",\n  "-r other.txt",\n]', "requirements", 5, "options"),
    (SMALL + 'requirements = ["./mine"]', "requirements", 3, "not a requirement"),
    (SMALL + 'requirements = ["x @ file:///etc"]', "requirements", 3, "https"),
    (SMALL + 'requirements = ["numpy>>1"]', "requirements", 3, "not a requirement"),
    (SMALL + "a = [", "syntax", 3, ""),
    (SMALL + "name = 'g'", "syntax", 3, "overwrite"),
    (SMALL + "x = " + "[" * 20000 + "]" * 20000, "syntax", 1, "deep"),
    (SMALL + f"x = {'9' * 5000}", "syntax", 1, "cannot be read"),
]


@pytest.mark.parametrize(("text", "key", "line", "rule"), BAD)
def test_a_refusal_names_key_rule_and_line(text: str, key: str, line: int, rule: str) -> None:
    error = refused(text)
    assert isinstance(error.detail, dict)
    assert (error.detail["key"], error.detail["line"]) == (key, line), error.message
    assert rule in error.message
    assert error.message.startswith(f"function.toml line {line}: {key}: ")
    assert len(error.message) < 400


def test_text_that_is_not_utf8_or_too_large_is_refused() -> None:
    with pytest.raises(BadRequest, match="line 2: text: is not UTF-8"):
        parse_manifest(b'name = "f"\n\xff', requirements_txt=None)
    with pytest.raises(BadRequest, match="larger than"):
        parse_manifest(b"#" * 70_000, requirements_txt=None)


def test_windows_line_ends_and_a_byte_order_mark_are_taken() -> None:
    text = b"\xef\xbb\xbf" + SMALL.replace("\n", "\r\n").encode()
    assert parse_manifest(text, requirements_txt=None).name == "f"


def test_a_key_inside_a_long_text_is_not_mistaken_for_a_key() -> None:
    error = refused(SMALL + '[env]\nA = """\nconcurrency = 0\n"""\nB = 3\n')
    assert "line 7: env.B" in error.message


def test_requirements_may_stand_in_a_file_of_their_own_but_not_in_both() -> None:
    content = b"# what we need\nnumpy>=2.0  # fast\n\nPillow \\\n  >=10\n"
    assert parse(SMALL, content).requirements == ("numpy>=2.0", "Pillow   >=10")
    assert parse(SMALL + "requirements = []", content).requirements == ("numpy>=2.0", "Pillow   >=10")
    assert parse(SMALL + 'requirements = ["a"]', b"# none\n").requirements == ("a",)
    assert "keep one of the two" in refused(SMALL + 'requirements = ["a"]', b"numpy").message


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"numpy\n-r other.txt", 2), (b"\n\n--index-url https://x", 3), (b"-e .", 1), (b"a\xff", 1), (b"/etc/passwd", 1)],
)
def test_a_bad_requirements_file_is_refused_with_its_line(content: bytes, line: int) -> None:
    error = refused(SMALL, content)
    assert error.message.startswith(f"requirements.txt line {line}: ")


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_give_a_manifest_or_a_refusal(data: bytes) -> None:
    for text in (data, SMALL.encode() + data):
        try:
            assert isinstance(parse_manifest(text, requirements_txt=data), Manifest)
        except BadRequest:
            pass


TABLES = ["env", "timeouts", "resources", "scale", "requirements"]
TOP = ["name", "namespace", "handler", "concurrency", "python", "max_body", "public", "shape"]
BELOW = ["total", "idle", "first_byte", "gpu", "gpu_memory", "cpu", "memory", "min", "max", "target"]
KEYS = st.sampled_from([*TABLES, *TOP, *BELOW])
VALUES = st.recursive(
    st.sampled_from(["1", "-1", "0", '"x"', '"3s"', '"1GiB"', "true", "1e400", "nan", "1979-05-27", "07:32:00", "''"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.dictionaries(KEYS, inner, max_size=3).map(
            lambda items: "{" + ", ".join(f"{k} = {v}" for k, v in items.items()) + "}"
        ),
    ),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_values_give_a_manifest_or_a_refusal(values: dict[str, str]) -> None:
    text = "\n".join(f"{key} = {value}" for key, value in ({"name": '"f"', "handler": '"a:b"'} | values).items())
    tomllib.loads(text)
    try:
        assert isinstance(parse(text), Manifest)
    except BadRequest as error:
        assert "line" in error.message
