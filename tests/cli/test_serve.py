"""`pcp serve` and `pcp chat`: a run with the real engine, what a dry run says, and refusals."""

import io
import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")

from pcp.cli import main
from pcp.distributed.wire.sockets import listen
from pcp.inference.text_model import TextModel
from pcp.models import decoder
from pcp.models.published import gpt2_config
from pcp.serving import forecast
from pcp.training.data.tokenizer import CharacterTokenizer
from pcp.training.recipes.config import TrainingConfig
from pcp.training.run_folder import RunFolder, save_state
from pcp.training.utilisation import Peak

LETTERS = "abcdefghinrstu: \n"
SECONDS = 120.0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run with a checkpoint of random parameters, of one small layer."""
    folder = RunFolder.create(tmp_path_factory.mktemp("runs") / "run", TrainingConfig())
    tokenizer = CharacterTokenizer(LETTERS)
    folder.write_tokenizer(tokenizer)
    config = gpt2_config(1, 2, 16, 64, tokenizer.vocabulary_size, bias=False)
    save_state(folder, 7, {"params": decoder.initial_parameters(config, 5)}, {}, "")
    return folder


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run's folder names a model of the usual sizes; this one is smaller."""
    monkeypatch.setattr(
        "pcp.inference.text_model.configuration", lambda _: gpt2_config(1, 2, 16, 64, 8, bias=False)
    )


def asked(address: str, path: str, body: Any) -> Any:
    request = urllib.request.Request(f"http://{address}{path}", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.loads(answer.read())


def test_a_run_is_served_by_a_process_that_ends_gracefully(run: RunFolder) -> None:
    code = "from tests.cli.test_serve import served; served()"
    command = [
        sys.executable,
        "-c",
        code,
        "serve",
        str(run.path),
        "--port",
        "0",
        "--json",
        "--chat-template",
        "plain",
    ]
    with subprocess.Popen([*command, "--rows", "2"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = json.loads(process.stdout.readline())
            assert said["event"] == "serving"
            body = {"prompt": "ab", "max_tokens": 5, "temperature": 0}
            one, other = (asked(said["address"], "/v1/completions", body) for _ in range(2))
            assert one["choices"] == other["choices"]
            assert one["usage"]["completion_tokens"] == 5
            talk = asked(
                said["address"],
                "/v1/chat/completions",
                {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4},
            )
            assert talk["usage"]["prompt_tokens"] == len("user:\nhi\nassistant:\n")
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()


def served() -> None:
    """`pcp` in a process of its own, with the small model."""
    import pcp.inference.text_model as text_model

    text_model.configuration = lambda _: gpt2_config(1, 2, 16, 64, 8, bias=False)
    sys.exit(main(sys.argv[1:]))


def test_a_talk_remembers_what_was_said(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "chat",
        str(run.path),
        "--chat-template",
        "plain",
        "--tokens",
        "3",
        "--temperature",
        "0",
        "--json",
    ]

    def talked(lines: str) -> list[str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        assert main(command) == 0
        return [json.loads(line)["content"] for line in capsys.readouterr().out.splitlines()]

    first, second, third = talked("hi\nbi\n/new\nhi\n")
    assert first == third
    assert len(first) == len(second) == 3
    assert talked("hi\n/again\n/end\nnever") == [first, first]  # it is greedy
    monkeypatch.setattr("sys.stdin", io.StringIO("x" * 3 + "\n" + "a" * 90 + "\n"))
    assert main(command) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "messages: Character 'x' (U+0078) at position 6 is not in the vocabulary" in said.err
    assert "the prompt has 108 tokens, and 'run' reads 64, of which some are the answer's" in said.err


def test_a_dry_run_says_whether_it_fits_and_how_fast_it_is(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(forecast, "bytes_per_second", lambda _: 1e9)
    monkeypatch.setattr(forecast, "peak_of", lambda _: Peak(1e12, "made up"))
    monkeypatch.setenv("PCP_MEMORY_LIMIT", "1MiB")
    assert main(["serve", str(run.path), "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    parameters = TextModel.of_run(run).parameters
    sizes = [leaf.nbytes for leaf in _leaves(parameters)]
    assert found["weight_bytes"] == sum(sizes)
    assert found["cache_bytes"] == 8 * 64 * 2 * 16 * 4  # rows, places, keys and values, width, bytes
    assert found["fits"]
    assert found["tokens_per_second"] == pytest.approx(1e9 / sum(sizes))
    assert main(["serve", str(run.path), "--dry-run", "--weights", "bf16"]) == 0
    assert "fits in the 1.0 MiB of cpu:0" in capsys.readouterr().out
    monkeypatch.setenv("PCP_MEMORY_LIMIT", "20KiB")
    assert main(["serve", str(run.path), "--dry-run"]) == 0
    assert "does not fit in the 0.0 MiB of cpu:0" in capsys.readouterr().out


def _leaves(tree: Any) -> list[Any]:
    from pcp.ir.tree import flatten

    return list(flatten(tree)[0])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "70000"], "--port is 70000; expected from 0 to 65535"),
        (
            ["--rows", "0"],
            "--rows is 0, --requests 256, --guesses 0 and --drain-seconds 30; expected at least 1, 1, 0",
        ),
        (["--key-file", "absent"], "cannot read keys from absent: [Errno 2]"),
        (
            ["--key-file", "short"],
            "a key in short has 3 characters; expected 16 or more each, in ASCII; make one: openssl",
        ),
        (["--key-file", "empty"], "empty has no key; make one: openssl rand -hex 32 > empty"),
        (["--chat-template", "absent.jinja"], "cannot read the chat template absent.jinja: No such file"),
    ],
)
def test_what_is_wrong_is_said(
    run: RunFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("short").write_text("abc\n")
    Path("empty").write_text("\n")
    assert main(["serve", str(run.path), *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_folder_without_a_model_and_a_tokenizer_of_another_are_refused(
    tmp_path: Path, run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(tmp_path)]) == 2
    assert "holds no model: there is no config.json in it" in capsys.readouterr().err
    model = TextModel.of_run(run)
    other = TextModel(model.parameters, model.config, CharacterTokenizer(LETTERS + "xyz"))
    monkeypatch.setattr("pcp.serving.opening.open_model", lambda _: other)
    assert main(["serve", str(run.path)]) == 2
    assert "has 20 tokens, and the model knows 17: they are not of one model" in capsys.readouterr().err


def test_a_port_that_is_taken_is_told_before_the_model_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    taken = listen("127.0.0.1", 0)
    port = taken.getsockname()[1]
    assert main(["serve", "no-such-folder", "--port", str(port)]) == 2
    assert f"port {port}" in capsys.readouterr().err
    taken.close()
