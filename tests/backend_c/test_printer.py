"""The C of single kernels: names, counters, nesting, types."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from loop_programs import end, local, loop, read, sink, store

from uopc.backend_c import Spelling, kernel_source
from uopc.backend_c.backend import spellings
from uopc.backend_c.printer import KernelPrinter
from uopc.backend_c.toolchain import BASE_FLAGS, find_compiler
from uopc.composite import pad
from uopc.config import overriding
from uopc.dtype import DTYPES, DType, boolean, f32, f64, i8, i32, i64, u8, u64
from uopc.runtime import lower
from uopc.uop import Ops, UOp


def buf(slot: int, n: int, dtype: DType = f32) -> UOp:
    return UOp.buffer(n, dtype, slot)


def printed(root: UOp, opt: int = 0) -> str:
    with overriding(UOPC_OPT=opt):
        return kernel_source(root, "k")


def body(root: UOp) -> list[str]:
    """The lines of the kernel's function, without indentation, helpers left out."""
    text = printed(root)
    return [line.strip() for line in text[text.index("void k(") :].splitlines()]


def depth(text: str) -> int:
    """The deepest nesting of brackets."""
    level = deepest = 0
    for c in text:
        level += (c in "([{") - (c in ")]}")
        deepest = max(deepest, level)
    assert level == 0
    return deepest


def compiles(text: str, tmp_path) -> None:
    file = tmp_path / "k.c"
    file.write_text(text)
    strict = ("-fsyntax-only", "-Wall", "-Wextra", "-Werror")
    # Nothing is linked: clang warns of a flag that is not used.
    flags = [flag for flag in BASE_FLAGS if flag != "-shared"]
    command = [*find_compiler().argv, *flags, *strict, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + text


# Names


def test_the_form_of_a_kernel():
    x, y = buf(0, 3), buf(1, 3)
    assert printed(x * y + x) == (
        "void k(float* restrict data0, float* restrict data1, float* restrict data2)"
        " {\n"
        "  for (int ridx0 = 0; ridx0 < 3; ridx0++) {\n"
        "    float val1 = data0[ridx0];\n"
        "    float val2 = data1[ridx0];\n"
        "    data2[ridx0] = ((val1*val2)+val1);\n"
        "  }\n"
        "}\n"
    )


def test_a_kernel_without_loops():
    assert printed(buf(0, 1).reshape(()) * 2.0).splitlines()[1:] == [
        "  float val1 = data0[0];",
        "  data1[0] = (val1*2.0f);",
        "}",
    ]


@pytest.mark.parametrize(
    ("slots", "expected"),
    [((0, 1), [0, 1, 2]), ((5, 2), [2, 5, 6]), ((7,), [7, 8]), ((3, 3), [3, 4])],
)
def test_arguments_ascend_by_slot_and_the_output_comes_last(
    slots: tuple[int, ...], expected: list[int]
):
    total = buf(slots[0], 4)
    for slot in slots[1:]:
        total = total * buf(slot, 4)
    (signature,) = re.findall(r"void k\((.*)\)", printed(total))
    assert [int(n) for n in re.findall(r"data(\d+)", signature)] == expected
    assert signature.count("* restrict ") == len(expected)


def test_a_buffer_that_is_not_read_is_no_argument():
    x, y, z = (buf(slot, 4, i32) for slot in (0, 1, 2))
    assert body(x * 0 + y + z * 0)[0] == (
        "void k(int* restrict data1, int* restrict data2) {"
    )
    # The slot of the output does not count one that nothing reads.
    assert body(UOp.const(True, boolean).where(UOp.const(1, i32), z.index(0)))[0] == (
        "void k(int* restrict data0) {"
    )


def test_values_and_shared_expressions_count_together_from_one():
    x, y = buf(0, 4), buf(1, 4)
    shared = (x + y) * 2.0
    text = printed(shared * shared + (y * y).sin() * (y * y))
    numbers = [int(n) for n in re.findall(r"float (?:val|alu)(\d+) =", text)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert {"val1", "val2"} <= set(re.findall(r"(?:val|alu)\d+", text))
    # Each is computed once and each buffer read once.
    assert text.count("+val2)") == text.count("data0[ridx0]") == 1
    assert text.count("val2*val2") == text.count("data1[ridx0]") == 1


def test_loops_and_accumulators_count_from_zero_in_order():
    x = buf(0, 24).reshape((2, 3, 4))
    total = x.reduce(Ops.ADD, 1).reduce(Ops.MAX, 1)
    text = printed(total)
    loops = re.findall(r"for \(int (ridx\d)", text)
    assert loops == ["ridx0", "ridx1", "ridx2"]
    assert re.findall(r"float (acc\d) = (.*);", text) == [
        ("acc1", "-__builtin_inff()"),
        ("acc0", "0.0f"),
    ]


def test_a_reduction_in_form():
    assert body(buf(0, 6).reshape((2, 3)).reduce(Ops.ADD, 1)) == [
        "void k(float* restrict data0, float* restrict data1) {",
        "for (int ridx0 = 0; ridx0 < 2; ridx0++) {",
        "float acc0 = 0.0f;",
        "for (int ridx1 = 0; ridx1 < 3; ridx1++) {",
        "float val1 = acc0;",
        "float val2 = data0[((ridx0*3)+ridx1)];",
        "acc0 = (val1+val2);",
        "}",
        "float val3 = acc0;",
        "data1[ridx0] = val3;",
        "}",
        "}",
    ]


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_what_is_padded_is_read_where_it_is(dtype: DType, tmp_path):
    text = printed(pad(buf(0, 6, dtype), [(1, 2)]))
    gate, index = "((0<ridx0)&(ridx0<7))", "(ridx0+-1)"
    assert re.search(re.escape(f" = ({gate}?data0[{index}]:") + "0", text)
    compiles(text, tmp_path)


def test_constants_come_last_and_axes_of_one_have_no_loop():
    x = buf(0, 4).reshape((1, 4, 1))
    assert "(val1+1.0f)" in printed(1.0 + x)
    assert printed(x).count("for (") == 1


def test_kernels_include_no_header():
    assert "#include" not in printed(buf(0, 4).sin().exp2() % 2.0)


# Nesting


def chain(dtype: DType, kind: str, length: int) -> UOp:
    x, y = buf(0, 4, dtype), buf(1, 4, dtype)
    u = x
    for k in range(length):
        other = y if k % 2 else y.const_like(k % 3 + 1)
        match kind:
            case "add":
                u = u + other
            case "max":
                u = u.maximum(other) * y
            case "where":
                u = (u < other).where(u + other, y)
            case "sqrt":
                u = (u + other).sqrt()
            case _:
                u = u // other
    return u


@pytest.mark.parametrize("opt", [0, 1])
@pytest.mark.parametrize("kind", ["add", "max", "where", "div"])
@pytest.mark.parametrize("dtype", [f32, i8, i32, u64], ids=str)
def test_a_long_chain_stays_shallow(dtype: DType, kind: str, opt: int, tmp_path):
    text = printed(chain(dtype, kind, 400), opt)
    assert depth(text) < 256
    # Not by naming everything: a name is for what is deep or shared.
    if kind == "add":
        assert text.count(" alu") < 40
    if opt == 0:
        compiles(text, tmp_path)


def test_a_deep_tree_stays_shallow(tmp_path):
    u = chain(f64, "sqrt", 200)
    for k in range(5):
        u = (u + buf(2 + k, 4, f64)) * u.exp2()
    text = printed(u)
    assert depth(text) < 256
    compiles(text, tmp_path)


# Types


def test_narrow_integers_are_cut_after_every_step():
    x, y = buf(0, 4, u8), buf(1, 4, u8)
    assert "((unsigned char)(val1+val2))" in printed((x + y) >> 1)
    assert "((unsigned char)(val1+val2))<val2" in printed(x + y < y)
    z = buf(0, 4, DTYPES["i16"])
    assert "((short)(val1*val1))" in printed(z * z)
    # What is 32 bits wide or more needs no cut.
    assert "(int)" not in printed(buf(0, 4, i32) + 1)


LARGE = 1 << 16


@pytest.mark.parametrize("opt", [0, 1])
@pytest.mark.parametrize(("n", "wide"), [(LARGE - 1, True), (LARGE >> 1, False)])
def test_positions_beyond_31_bits_are_counted_in_64(n: int, wide: bool, opt: int):
    view = buf(0, n).reshape((n, 1)).expand((n, n))
    for u in (view, view.reshape((n * n,)).reduce(Ops.ADD, 1)):
        loops = re.findall(r"for \((.*?) ridx", printed(u, opt))
        assert set(loops) == {"long long" if wide else "int"}
    for u in (view.reduce(Ops.ADD, 2), view.permute((1, 0)).reduce(Ops.MAX, 1)):
        assert "long long" not in printed(u, opt)  # many rounds, but no such position


def test_a_gathered_position_beyond_31_bits():
    table = buf(0, LARGE * LARGE).reshape((LARGE, LARGE))
    lines = body(table.index(buf(1, 3, i32)).reduce(Ops.ADD, 1))
    # The index keeps its own type until it becomes a position.
    place = "((((long long)(alu3?val2:0))*65536LL)+ridx1)"
    assert f"float val4 = data0[{place}];" in lines
    assert "_Bool alu3 = ((-1<val2)&(val2<65536));" in lines
    assert [line.split()[1] for line in lines if line[:3] == "for"] == ["(long"] * 2


@pytest.mark.parametrize(
    ("dtype", "value", "text"),
    [
        (f32, 0.1, "0.1f"),
        (f32, 1.0, "1.0f"),
        (f32, -0.0, "-0.0f"),
        (f32, 1e-45, "1e-45f"),
        (f32, 1e20, "1e+20f"),
        (f32, float("inf"), "__builtin_inff()"),
        (f32, float("nan"), '__builtin_nanf("")'),
        (f64, 0.1, "0.1"),
        (f64, 2.0**60, "1.152921504606847e+18"),
        (f64, float("-inf"), "-__builtin_inf()"),
        (i32, -(2**31), "(-2147483647-1)"),
        (i64, -(2**63), "(-9223372036854775807LL-1)"),
        (i8, -128, "-128"),
        (DTYPES["u32"], 2**32 - 1, "4294967295u"),
        (u64, 2**64 - 1, "18446744073709551615ull"),
        (boolean, True, "1"),
    ],
)
def test_literals_are_the_shortest_text_with_that_value(
    dtype: DType, value: float, text: str
):
    assert f"data0[0] = {text};" in printed(UOp.const(value, dtype))


# What gcc 12.2 gets wrong


PRAGMA = "#pragma GCC unroll 1\n"


def loops(program: UOp, opt: int) -> str:
    with overriding(UOPC_OPT=opt):
        return KernelPrinter(program, spellings()).text()


def test_inner_loops_are_not_unrolled_behind_the_schedule_s_back():
    i, j, k = loop(0, 8), loop(1, 8), loop(2, 4, "parallel")
    for dtype in (f32, i32):
        x, out = buf(0, 64, dtype), buf(1, 64, dtype)
        copy = store(out, i * 8 + j, read(x, i * 8 + j))
        nested = sink("k", end(i, end(j, copy)))
        assert loops(nested, 1).count(PRAGMA) == 1
        assert PRAGMA not in loops(nested, 0)
        alone = end(i, store(out, i, read(x, i)))
        assert PRAGMA not in loops(sink("k", alone), 1)
        # The outermost loop of a function, whatever the function is.
        assert PRAGMA not in loops(sink("k", end(k, alone)), 1)
        assert loops(sink("k", end(k, end(i, end(j, copy)))), 1).count(PRAGMA) == 1


def test_lanes_may_be_unrolled():
    i, j, k, lane = loop(0, 8), loop(1, 8), loop(2, 8), loop(3, 8, "vector")
    x, out, acc = buf(0, 64, f32), buf(1, 64, f32), local(0, 8, f32)
    # A loop over an array of sums, which is inside one of terms.
    over = end(k, store(acc, k, read(acc, k) + read(x, j * 8 + k)))
    finish = end(k, store(out, k, read(acc, k)))
    text = loops(sink("k", end(i, end(j, over), finish)), 1)
    found = re.findall(r"(pragma GCC unroll 1\n\s*)?for \(int (\w+) ", text)
    assert [bool(marked) for marked, _ in found] == [False, True, False, False]
    # One over vectors has nothing left to vectorise.
    vectors = end(i, end(j, end(lane, store(out, lane + j * 8, read(x, lane)))))
    assert PRAGMA not in loops(sink("k", vectors), 1)


def test_an_index_made_of_a_truth_value_is_hidden_from_the_vectoriser():
    table, x = buf(0, 9), buf(1, 4)
    counted = table.index((x < 1.0).cast(i32))
    assert "data0[uopc_opaque_i32(" in printed(counted, 1)
    assert "uopc_opaque" not in printed(counted, 0)
    three, five = (UOp.const(v, i32).broadcast_scalar((4,)) for v in (3, 5))
    chosen = table.index((x < 1.0).where(three, five))
    assert "data0[uopc_opaque_i32(" in printed(chosen, 1)
    # A condition that only keeps the read in bounds is no number.
    assert "uopc_opaque" not in printed(table.index(buf(1, 4, i32)), 1)


@pytest.mark.parametrize(
    ("spelling", "message"),
    [
        (Spelling("({1}*3)"), r"spelling of sqrt, '\(\{1\}\*3\)', cannot .*0 to 0, t"),
        (Spelling("{q}"), "spelling of sqrt, '{q}', cannot be filled in"),
        (Spelling("f({0})", "{broken"), "spelling of sqrt, .* cannot be filled in"),
        ("sqrt({0})", "spelling of sqrt is 'sqrt.*expected a uopc.backend_c.Spelling"),
        (lambda u, bounds: "sqrt", "spelling of sqrt is 'sqrt'; expected"),
    ],
)
def test_a_spelling_at_fault_is_named(spelling, message: str) -> None:
    sink = lower(buf(0, 4).sqrt(), "k")
    printer = KernelPrinter(sink, {**spellings(), Ops.SQRT: spelling})
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        printer.text()
    (note,) = caught.value.__notes__
    assert note.startswith("raised by the C spelling of op 'sqrt' (plugin 'c'")
