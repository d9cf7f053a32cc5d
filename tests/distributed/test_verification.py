"""Programs that came over the network: verified in a child that may crash, hang or eat memory, and this process may not."""

import functools
import hashlib
import json
import os
import random
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import pcp
from pcp.distributed import verification
from pcp.distributed.sandbox import Policy
from pcp.distributed.verification import ProgramRefused, VerificationCancelled, admit, check
from pcp.ir import Program
from pcp.ir.unchecked import CorruptProgram
from pcp.kernels import KernelNotBuilt
from pcp.planning import plan
from pcp.processes.child import ChildProcess, framed
from pcp.symbolic.constraints import SizesRefused, Space
from pcp.symbolic.program import SymbolicProgram
from tests.suite.share import part

MEMORY = 8 << 30
SECONDS = 60.0

ADD = """module { func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %a, %a : tensor<4xf32>
  return %0 : tensor<4xf32>
} }"""


def body(lines: str) -> Program:
    """A program of one f32[4] with these operations; the last is %0."""
    return Program.parse(
        "module { func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {"
        + lines
        + "return %0 : tensor<4xf32> } }"
    )


@functools.cache
def artifact() -> bytes:
    """An artifact of a page or two."""

    def several(a: pcp.Tensor, b: pcp.Tensor) -> pcp.Tensor:
        for _ in range(20):
            a = (a @ b) * 0.5 + a.sum(axis=0)
        return a

    return pcp.trace(several, pcp.spec((8, 8), "f32"), pcp.spec((8, 8), "f32")).artifact()


def test_an_ordinary_program_is_admitted_and_compiled(test_home: Path) -> None:
    before = set(test_home.rglob("*.xla"))
    found = admit({"several": artifact()}, "cpu:0", MEMORY, SECONDS)
    assert list(found) == ["several"]
    assert found["several"] == Program.from_artifact(artifact())
    assert set(test_home.rglob("*.xla")) == before, "the child wrote machine code to the user's cache"
    value = plan(found["several"]).run(np.eye(8, dtype=np.float32), np.ones((8, 8), np.float32))
    assert np.isfinite(value).all()


CUSTOM_CALL = "%0 = stablehlo.custom_call @evil(%a) : (tensor<4xf32>) -> tensor<4xf32>"
INFEED = """%t = stablehlo.create_token : !stablehlo.token
%0, %u = "stablehlo.infeed"(%t) : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)"""
OUTFEED = """%t = stablehlo.create_token : !stablehlo.token
%u = "stablehlo.outfeed"(%a, %t) : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
%0 = stablehlo.add %a, %a : tensor<4xf32>"""
SEND = """%t = stablehlo.create_token : !stablehlo.token
%u = "stablehlo.send"(%a, %t) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>, is_host_transfer = true}
  : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
%0 = stablehlo.add %a, %a : tensor<4xf32>"""
RECV = """%t = stablehlo.create_token : !stablehlo.token
%0, %u = "stablehlo.recv"(%t) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 3>, is_host_transfer = true}
  : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)"""


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (CUSTOM_CALL, "holds stablehlo.custom_call, which is refused: it would run native code"),
        (INFEED, "holds stablehlo.infeed, which is refused: it reads from outside of the program"),
        (OUTFEED, "holds stablehlo.outfeed, which is refused: it writes outside of the program"),
        (SEND, "holds stablehlo.send, which is refused: it speaks to other devices"),
        (RECV, "holds stablehlo.recv, which is refused: it speaks to other devices"),
    ],
)
def test_an_operation_that_reaches_outside_is_refused(lines: str, message: str) -> None:
    with pytest.raises(ProgramRefused, match=message):
        check(body(lines))


def test_an_operation_inside_of_a_loop_is_found() -> None:
    inside = """%0 = "stablehlo.while"(%a) ({
        ^bb0(%x: tensor<4xf32>): %c = stablehlo.constant dense<false> : tensor<i1>  stablehlo.return %c : tensor<i1>
      }, {
        ^bb0(%x: tensor<4xf32>): %y = stablehlo.custom_call @evil(%x) : (tensor<4xf32>) -> tensor<4xf32>
        stablehlo.return %y : tensor<4xf32>
      }) : (tensor<4xf32>) -> tensor<4xf32>"""
    with pytest.raises(ProgramRefused, match=r"stablehlo\.custom_call"):
        check(body(inside))


def test_an_operation_of_a_foreign_dialect_is_refused() -> None:
    program = Program.parse('module { sdy.mesh @mesh = <["x"=1]> ' + ADD.removeprefix("module {"))
    with pytest.raises(
        ProgramRefused, match=r"holds sdy\.mesh; only stablehlo, chlo, func, builtin are accepted"
    ):
        check(program)


def test_too_many_operations_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "MAXIMUM_OPERATIONS", 3)
    with pytest.raises(ProgramRefused, match="the program holds 4 operations; at most 3 are accepted"):
        check(Program.parse(ADD))


def test_an_artifact_that_is_too_large_starts_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "MAXIMUM_ARTIFACT_BYTES", 10)
    monkeypatch.setattr(verification, "ChildProcess", None)
    with pytest.raises(ProgramRefused, match="the program 'big' has 11 bytes; at most 10 are accepted"):
        admit({"big": b"12345678901"}, "cpu:0", MEMORY, SECONDS)


def test_the_child_says_which_program_is_refused_and_why() -> None:
    programs = {"good": artifact(), "bad": body(CUSTOM_CALL).artifact()}
    with pytest.raises(ProgramRefused, match=r"the program 'bad' is refused: .* it would run native code"):
        admit(programs, "cpu:0", MEMORY, SECONDS)


def test_a_program_that_needs_more_memory_than_the_device_has_is_refused() -> None:
    huge = pcp.trace(lambda a: a + 1, pcp.spec((1 << 40,), "f32")).artifact()
    with pytest.raises(ProgramRefused, match="the program 'huge' is refused: the program needs at least"):
        admit({"huge": huge}, "cpu:0", MEMORY, SECONDS)


def test_damaged_artifacts_are_refused_and_this_process_lives() -> None:
    good = artifact()
    before = threading.active_count()
    for damaged in (b"", b"no artifact", good[: len(good) // 2]):
        with pytest.raises(ProgramRefused, match="'damaged'"):
            admit({"damaged": damaged}, "cpu:0", MEMORY, SECONDS)
    assert threading.active_count() == before


def test_a_child_that_crashes_is_a_refused_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    replace_child(monkeypatch, tmp_path, 'say(\'{"verifies": "step"}\'); os.abort()')
    monkeypatch.setattr("pcp.distributed.verification.data_bytes", lambda: 20_000)  # what the user allows
    with pytest.raises(
        ProgramRefused, match="'step' ended with SIGABRT: it is damaged, or needs more than 20000 bytes"
    ):
        admit({"start": b"1", "step": b"2"}, "cpu:0", MEMORY, SECONDS)


def test_a_child_that_crashes_before_it_has_read_is_a_refused_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    replace_child(monkeypatch, tmp_path, "os.abort()")
    write = ChildProcess._write

    def late(self: ChildProcess) -> None:
        time.sleep(0.5)
        write(self)

    monkeypatch.setattr(ChildProcess, "_write", late)
    with pytest.raises(ProgramRefused, match="verifying the program 'step' ended with SIGABRT"):
        admit({"step": b"1"}, "cpu:0", MEMORY, SECONDS)


def test_a_child_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pid_file = replace_child(monkeypatch, tmp_path, 'say(\'{"verifies": "step"}\'); threading.Event().wait()')
    with pytest.raises(ProgramRefused, match="verifying the program 'step' took more than 1 s"):
        admit({"step": b"1" * (1 << 20)}, "cpu:0", MEMORY, 1.0)
    assert_gone(int(pid_file.read_text()))


def test_a_child_whose_worker_was_killed_ends_by_itself() -> None:
    """Its input then closes, which is all that it can notice."""
    request = framed("cpu:0", MEMORY, {"several": artifact()}, {})
    command = [sys.executable, "-m", "pcp.distributed.verification"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as held:
        assert held.stdin is not None
        held.stdin.write(request)
        held.stdin.flush()
        assert held.wait(SECONDS) == 0
    assert b"admitted" not in subprocess.run(command, input=request, capture_output=True, check=False).stdout


def test_a_stopping_worker_ends_the_child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pid_file = replace_child(monkeypatch, tmp_path, "threading.Event().wait()")
    with pytest.raises(VerificationCancelled, match="the worker stops"):
        admit({"step": b"1"}, "cpu:0", MEMORY, SECONDS, pid_file.exists)
    assert_gone(int(pid_file.read_text()))


def test_what_a_child_says_cannot_fill_the_log_or_steer_a_terminal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    replace_child(
        monkeypatch, tmp_path, "say(json.dumps({'refused': '\\x1b[2J' + 'x' * 10_000})); sys.exit(3)"
    )
    with pytest.raises(ProgramRefused) as refused:
        admit({"step": b"1"}, "cpu:0", MEMORY, SECONDS)
    assert len(str(refused.value)) < 600
    assert "\x1b" not in str(refused.value)


def test_the_child_keeps_to_its_memory() -> None:
    sound = Program.parse(ADD)
    check(sound)
    with pytest.raises(
        ProgramRefused, match=r"'add'.*(it is damaged, or needs more than 1048576 bytes|is refused)"
    ):
        admit({"add": sound.artifact()}, "cpu:0", 1 << 20, SECONDS)


def replace_child(monkeypatch: pytest.MonkeyPatch, folder: Path, source: str) -> Path:
    """Let other source stand for the child. Returns the file in which it says its number."""
    pid_file = folder / "pid"
    program = folder / "child.py"
    program.write_text(
        "import json, os, sys, threading\n"
        "say = lambda line: print(line, flush=True)\n"
        f"open({str(pid_file) + '.new'!r}, 'w').write(str(os.getpid()))\n"
        f"os.rename({str(pid_file) + '.new'!r}, {str(pid_file)!r})\n" + source + "\n"
    )
    monkeypatch.setattr(Policy, "command", lambda *_: [sys.executable, str(program)])
    return pid_file


def assert_gone(pid: int) -> None:
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_composite_that_is_not_what_its_name_says_is_refused() -> None:
    text = """module {
  func.func private @inner(%a: tensor<2x4xf32>) -> tensor<2x4xf32> { return %a : tensor<2x4xf32> }
  func.func @main(%a: tensor<2x4xf32>) -> tensor<2x4xf32> {
    %0 = stablehlo.composite "pcp.softmax.vjp" %a {composite_attributes = {wrt = 7 : i64}, decomposition = @inner}
      : (tensor<2x4xf32>) -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
}"""
    sent = {"step": Program.parse(text).artifact(named=True)}
    with pytest.raises(
        ProgramRefused, match=r"a composite 'pcp.softmax.vjp' whose attributes are not those of that name"
    ):
        admit(sent, "cpu:0", MEMORY, SECONDS)


NOT_BUILT = {
    "rms_norm": ("axis = 1 : i64, epsilon = 1.0, scale = true, bias = false", "StopIteration"),
    "cross_entropy": (
        "axis = 1 : i64, wraps = false, clamps = false, outside = 0.0, negated = false",
        "ValueError: not enough values to unpack",
    ),
}


def test_a_composite_that_no_kernel_can_compute_ends_in_an_error_that_says_so() -> None:
    sent = {}
    for name, (attributes, _) in NOT_BUILT.items():
        text = f"""module {{
  func.func private @inner(%a: tensor<2x4xf32>) -> tensor<2x4xf32> {{ return %a : tensor<2x4xf32> }}
  func.func @main(%a: tensor<2x4xf32>) -> tensor<2x4xf32> {{
    %0 = stablehlo.composite "pcp.{name}" %a {{composite_attributes = {{{attributes}}}, decomposition = @inner}}
      : (tensor<2x4xf32>) -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }}
}}"""
        sent[name] = Program.parse(text).artifact(named=True)
    for name, program in admit(sent, "cpu:0", MEMORY, SECONDS).items():
        said = rf"cannot stand for pcp.{name} of tensor<2x4xf32>: {NOT_BUILT[name][1]}.*; expected"
        with pytest.raises(KernelNotBuilt, match=said):
            plan(program, tolerance=1e-3, cache=False)


def mutated(form: str, seed: int) -> bytes:
    """A program as bytecode or as text, with some of its bytes or words changed, repeated, or cut off."""
    rng = random.Random(seed)
    if form == "bytecode":
        content = bytearray(artifact())
        for _ in range(rng.randint(1, 20)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        if seed % 3 == 2:
            del content[rng.randrange(len(content)) :]
        return bytes(content)
    words = str(Program.from_artifact(artifact()).module()).split(" ")
    for _ in range(rng.randint(1, 6)):
        place, other = (
            rng.randrange(len(words)),
            rng.choice([*words, "-1", "tensor<0x?xf32>", "(" * 5000, "!a", "99999999999999"]),
        )
        words[place : place + rng.randint(0, 2)] = [other] * rng.randint(0, 3)
    return " ".join(words).encode()


def verdict(content: bytes) -> str:
    """What is said of bytes; it is always said of them, in a typed error, and what is admitted is a program."""
    try:
        found = admit({"several": content}, "cpu:0", MEMORY, SECONDS)
    except ProgramRefused as error:
        return "refused" if "the program 'several'" in str(error) else str(error)
    assert found["several"] == Program.from_artifact(content)
    return "admitted"


@pytest.mark.parametrize("form", ["bytecode", "text"])
def test_a_mutated_artifact_is_refused_or_is_a_program(form: str) -> None:
    """What a child says of damaged bytes is a verdict, whatever it dies of; this process is not harmed."""
    [seed] = part(range(30), 30)
    assert verdict(mutated(form, seed)) in ("refused", "admitted"), seed


@pytest.mark.long
def test_sixty_mutated_artifacts_are_refused_or_are_programs() -> None:
    contents = [mutated(form, seed) for form in ("bytecode", "text") for seed in range(30)]
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(verdict, contents))
    assert outcomes.count("refused") > 30
    assert threading.active_count() < 20


@functools.cache
def symbolic() -> bytes:
    """A program of all batches and lengths up to 512."""

    def several(a: pcp.Tensor, b: pcp.Tensor) -> pcp.Tensor:
        return pcp.softmax((a @ b) * 0.5, axis=-1).sum(axis=0) / a.shape[0]

    specs = pcp.spec(("batch", 8), "f32"), pcp.spec((8, "length"), "f32")
    return pcp.trace(several, *specs, constraints=["length <= 512"]).artifact()


SIZES = {"batch": 3, "length": 20}


def test_a_symbolic_program_is_admitted_at_the_sizes_that_are_named() -> None:
    whole = SymbolicProgram.from_artifact(symbolic())
    sent = {"whole": symbolic(), "several": artifact()}
    found = admit(sent, "cpu:0", MEMORY, SECONDS, sizes={"whole": SIZES})
    assert found["whole"] == whole.at(**SIZES)
    assert found["several"] == Program.from_artifact(artifact())
    a, b = np.ones((3, 8), np.float32), np.eye(8, 20, dtype=np.float32)
    np.testing.assert_allclose(plan(found["whole"]).run(a, b), plan(whole.at(**SIZES)).run(a, b))


@pytest.mark.parametrize(
    ("sent", "sizes", "message"),
    [
        (symbolic, {}, "it is a symbolic program of batch, length, and the sizes that are given for it are"),
        (symbolic, {"batch": 3}, "expected one of each"),
        (symbolic, SIZES | {"more": 1}, "expected one of each"),
        (symbolic, SIZES | {"batch": 10**30}, "expected an integer from 1 on"),
        (symbolic, SIZES | {"batch": 0}, "expected an integer from 1 on"),
        (artifact, SIZES, "sizes .* are given for it, and it is no symbolic program"),
    ],
)
def test_sizes_that_are_not_those_of_the_program_are_refused(
    sent: Callable[[], bytes], sizes: dict[str, int], message: str
) -> None:
    with pytest.raises((ProgramRefused, SizesRefused), match=message):
        verification._read(sent(), sizes)


def test_the_child_refuses_sizes_that_the_constraints_forbid() -> None:
    with pytest.raises(ProgramRefused, match=r"the program 'whole' is refused: .*length <= 512"):
        admit({"whole": symbolic()}, "cpu:0", MEMORY, SECONDS, sizes={"whole": SIZES | {"length": 513}})


def test_what_a_symbolic_program_must_not_hold_is_found_at_its_sizes() -> None:
    evil = CUSTOM_CALL.replace("tensor<4xf32>", "tensor<{size}xf32>")
    text = (
        "module {{ func.func @main(%a: tensor<{size}xf32>) -> tensor<{size}xf32> {{"
        + evil
        + "  return %0 : tensor<{size}xf32> }} }}"
    )
    space = Space.of(["size"], [])
    made = SymbolicProgram.build(space, lambda sizes: Program.parse(text.format(**sizes)))
    with pytest.raises(ProgramRefused, match=r"holds stablehlo\.custom_call, which is refused"):
        admit({"step": made.artifact()}, "cpu:0", MEMORY, SECONDS, sizes={"step": {"size": 9}})


def test_a_symbolic_program_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "MAXIMUM_SYMBOLIC_BYTES", 1000)
    with pytest.raises(CorruptProgram, match=r"it announces \d+ programs of \d+ bytes"):
        verification._read(symbolic(), SIZES)


def mutated_symbolic(seed: int) -> bytes:
    """A symbolic program with bytes changed: as it lies there, or below its checksums, which are made anew."""
    rng = random.Random(seed)
    if seed % 3 == 0:
        content = bytearray(symbolic())
        content[rng.randrange(8, len(content))] ^= 1 << rng.randrange(8)
        return bytes(content)
    fixed = struct.Struct("<8sIIQ")
    magic, form, size, _ = fixed.unpack_from(symbolic())
    header = json.loads(symbolic()[fixed.size : fixed.size + size])
    body = bytearray(zlib.decompress(symbolic()[fixed.size + size : -32]))
    if seed % 3 == 1:
        for _ in range(rng.randint(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        start = 0
        for entry in header["programs"]:
            entry["sha256"] = hashlib.sha256(body[start : start + entry["bytes"]]).hexdigest()
            start += entry["bytes"]
    else:
        name = rng.choice(["symbols", "constraints", "programs"])
        values = [
            [],
            {},
            ["batch"],
            [["length <= 9**9**9", ""]],
            [["(" * 5000, ""]],
            [["batch == length", ""]],
        ]
        header[name] = rng.choice([*values, header[name][::-1], header[name] * 40])
    text, packed = json.dumps(header).encode(), zlib.compress(bytes(body))
    content = fixed.pack(magic, form, len(text), len(packed)) + text + packed
    return content + hashlib.sha256(content).digest()


def symbolic_verdict(content: bytes) -> str:
    """As `verdict`, of a symbolic program at some sizes."""
    try:
        found = admit({"whole": content}, "cpu:0", MEMORY, SECONDS, sizes={"whole": SIZES})
    except ProgramRefused as error:
        return "refused" if "the program 'whole'" in str(error) else str(error)
    assert found["whole"] == SymbolicProgram.from_artifact(content).at(**SIZES)
    return "admitted"


def test_a_mutated_symbolic_artifact_is_refused_or_is_a_program() -> None:
    [seed] = part(range(24), 24)
    assert symbolic_verdict(mutated_symbolic(seed)) in ("refused", "admitted"), seed


@pytest.mark.long
def test_many_mutated_symbolic_artifacts_are_refused_or_are_programs() -> None:
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(symbolic_verdict, map(mutated_symbolic, range(24))))
    assert set(outcomes) <= {"refused", "admitted"}
    assert outcomes.count("refused") > 12
