"""The Python entry of a host function: a builtin function of Python, during whose call no Python code runs.

In: the host function (native, `host.py`) and what is known of each parameter (`base.Argument`). Out: a builtin function of the program's
arguments. It takes tensors through the table of C functions that their library publishes for this (`__dlpack_c_exchange_api__` of DLPack
1.2: a tensor as a `DLTensor` without an allocation, the library's current stream), calls the host function without Python's lock, and
returns None. It handles what is common. Whatever else comes, such as other types, keywords, numbers out of range, a library's refusal,
goes to a Python function (`otherwise`) before anything has happened; when the host function has raised an error, another one (`refused`)
gets the arguments.

The code is LLVM's text, part of every host function (docs/host.md). Nothing of Python is linked: its functions and objects are words of
memory, as the driver's are.
"""

from __future__ import annotations

import ctypes
import functools
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.tvm_api import ffi, ffi_function
from ..base import Argument
from ..llvm import module_of_text

OTHERWISE = 1  # returned by a host function, before anything has happened, for tensors that bulk copies cannot move

# ---------------------------------------------------------------- words
# Of the process: functions of Python, functions of TVM's FFI, objects of Python.
_PYTHON = (
    "PyLong_AsVoidPtr", "PyObject_Type", "Py_DecRef", "Py_IncRef", "PyObject_GetAttr", "PyObject_Vectorcall", "PyErr_Clear",
    "PyLong_AsLongLongAndOverflow", "PyFloat_AsDouble", "PyEval_SaveThread", "PyEval_RestoreThread",
)  # fmt: skip
_FFI = ("TVMFFIEnvSetStream", "TVMFFIFunctionCall")
_OBJECTS = {"None": None, "True": True, "int": int, "float": float, "bool": bool, "gradient": sys.intern("requires_grad")}
_PROCESS = {name: k for k, name in enumerate((*_PYTHON, *_FFI, *_OBJECTS))}
# Of one function; then those of each parameter: kind, what a tensor must not have, the least and the greatest value of an integer.
_HEAD = ("otherwise", "refused", "count", "host", "table", "class", "subclass", "borrow", "current_stream", "is_neg")
_EACH = 4
_KINDS = ("tensor", "float", "int")
_GRADIENT, _NEGATION, _OVERLAP = 1, 2, 4

# ---------------------------------------------------------------- text
# `%name = process` and `%name = function` load a word by its name.
_TEXT = """
@words.place = internal global ptr null

; Is it True, or a failure? Either way the arguments are for `otherwise`. Takes the reference.
define internal i1 @tilelang_doubt(ptr %words, ptr %answer) {
  %failed = icmp eq ptr %answer, null
  br i1 %failed, label %clear, label %compare
clear:
  %PyErr_Clear = process
  call void %PyErr_Clear()
  ret i1 true
compare:
  %Py_DecRef = process
  call void %Py_DecRef(ptr %answer)
  %True = process
  %same = icmp eq ptr %answer, %True
  ret i1 %same
}

; The class of an object, which keeps it alive.
define internal ptr @tilelang_class(ptr %words, ptr %object) {
  %PyObject_Type = process
  %class = call ptr %PyObject_Type(ptr %object)
  %Py_DecRef = process
  call void %Py_DecRef(ptr %class)
  ret ptr %class
}

; A tensor, lent to `tensor`. state: type and number of the device (type -1: none yet), the stream.
define internal i1 @tilelang_tensor(ptr %words, ptr %record, ptr %place, i64 %flags, ptr %tensor, ptr %state) {
  %object = load ptr, ptr %place
  %found = call ptr @tilelang_class(ptr %words, ptr %object)
  %class = function
  %subclass = function
  %is.class = icmp eq ptr %found, %class
  %is.subclass = icmp eq ptr %found, %subclass
  %known = or i1 %is.class, %is.subclass
  br i1 %known, label %lend, label %no
lend:
  %borrow = function
  %lent = call i32 %borrow(ptr %object, ptr %tensor)
  %refused = icmp ne i32 %lent, 0
  br i1 %refused, label %clear, label %gradients
clear:
  %PyErr_Clear = process
  call void %PyErr_Clear()
  br label %no

gradients:
  %want.gradient = and i64 %flags, 1
  %skip.gradient = icmp eq i64 %want.gradient, 0
  br i1 %skip.gradient, label %negation, label %ask.gradient
ask.gradient:
  %PyObject_GetAttr = process
  %gradient = process
  %has.gradient = call ptr %PyObject_GetAttr(ptr %object, ptr %gradient)
  %doubt.gradient = call i1 @tilelang_doubt(ptr %words, ptr %has.gradient)
  br i1 %doubt.gradient, label %no, label %negation
negation:
  %want.negation = and i64 %flags, 2
  %skip.negation = icmp eq i64 %want.negation, 0
  br i1 %skip.negation, label %extents, label %ask.negation
ask.negation:
  %PyObject_Vectorcall = process
  %is_neg = function
  %negated = call ptr %PyObject_Vectorcall(ptr %is_neg, ptr %place, i64 1, ptr null)
  %doubt.negation = call i1 @tilelang_doubt(ptr %words, ptr %negated)
  br i1 %doubt.negation, label %no, label %extents

extents:
  %rank.at = getelementptr i8, ptr %tensor, i64 16
  %rank.32 = load i32, ptr %rank.at
  %rank = zext i32 %rank.32 to i64
  %shape.at = getelementptr i8, ptr %tensor, i64 24
  %shape = load ptr, ptr %shape.at
  %strides.at = getelementptr i8, ptr %tensor, i64 32
  %strides = load ptr, ptr %strides.at
  %overlap.flag = and i64 %flags, 4
  %any.stride = icmp eq i64 %overlap.flag, 0
  %no.strides = icmp eq ptr %strides, null
  br i1 %no.strides, label %no, label %axis
axis:
  %k = phi i64 [0, %extents], [%k.next, %next]
  %done = icmp eq i64 %k, %rank
  br i1 %done, label %device, label %extent
extent:
  %extent.at = getelementptr i64, ptr %shape, i64 %k
  %extent.is = load i64, ptr %extent.at
  %stride.at = getelementptr i64, ptr %strides, i64 %k
  %stride.is = load i64, ptr %stride.at
  %small.extent = icmp ult i64 %extent.is, 2147483648
  %small.stride = icmp ult i64 %stride.is, 2147483648
  %moves = icmp ne i64 %stride.is, 0
  %apart = or i1 %moves, %any.stride
  %small = and i1 %small.extent, %small.stride
  %fine = and i1 %small, %apart
  br i1 %fine, label %next, label %no
next:
  %k.next = add i64 %k, 1
  br label %axis

device:
  %type.at = getelementptr i8, ptr %tensor, i64 8
  %type = load i32, ptr %type.at
  %number.at = getelementptr i8, ptr %tensor, i64 12
  %number = load i32, ptr %number.at
  %known.type = load i32, ptr %state
  %first = icmp eq i32 %known.type, -1
  %on.device = icmp ne i32 %type, 1
  %ask = and i1 %first, %on.device
  br i1 %ask, label %ask.stream, label %yes
ask.stream:
  %state.number = getelementptr i8, ptr %state, i64 4
  %state.stream = getelementptr i8, ptr %state, i64 8
  %current_stream = function
  %told = call i32 %current_stream(i32 %type, i32 %number, ptr %state.stream)
  store i32 %type, ptr %state
  store i32 %number, ptr %state.number
  %no.stream = icmp ne i32 %told, 0
  br i1 %no.stream, label %clear, label %yes
yes:
  ret i1 true
no:
  ret i1 false
}

; A number as a value of TVM's FFI. kind: 1 takes floats and integers, 2 integers and bools.
define internal i1 @tilelang_number(ptr %words, ptr %object, i64 %kind, i64 %low, i64 %high, ptr %value) {
  %overflow = alloca i32
  %content = getelementptr i8, ptr %value, i64 8
  %class = call ptr @tilelang_class(ptr %words, ptr %object)
  %int = process
  %bool = process
  %float = process
  %is.int = icmp eq ptr %class, %int
  %is.bool = icmp eq ptr %class, %bool
  %is.float = icmp eq ptr %class, %float
  %takes.float = icmp eq i64 %kind, 1
  %as.float = and i1 %is.float, %takes.float
  br i1 %as.float, label %float.value, label %other
float.value:
  %PyFloat_AsDouble = process
  %double = call double %PyFloat_AsDouble(ptr %object)
  store i32 3, ptr %value
  store double %double, ptr %content
  ret i1 true
other:
  %takes.bool = xor i1 %takes.float, true
  %as.bool = and i1 %is.bool, %takes.bool
  %as.integer = or i1 %as.bool, %is.int
  br i1 %as.integer, label %integer, label %no
integer:
  %PyLong_AsLongLongAndOverflow = process
  %number = call i64 %PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflow)
  %index = select i1 %is.bool, i32 2, i32 1
  store i32 %index, ptr %value
  store i64 %number, ptr %content
  %over = load i32, ptr %overflow
  %fits = icmp eq i32 %over, 0
  %not.below = icmp sge i64 %number, %low
  %not.above = icmp sle i64 %number, %high
  %inside = and i1 %not.below, %not.above
  %good = and i1 %fits, %inside
  ret i1 %good
no:
  ret i1 false
}

define internal ptr @tilelang_call(ptr %self, ptr %args, i64 %given, ptr %names) {
  %words = load ptr, ptr @words.place
  %PyLong_AsVoidPtr = process
  %record = call ptr %PyLong_AsVoidPtr(ptr %self)
  %count.word = function count
  %count = ptrtoint ptr %count.word to i64
  %named = icmp ne ptr %names, null
  %other.count = icmp ne i64 %given, %count
  %unusual = or i1 %named, %other.count
  br i1 %unusual, label %otherwise, label %start
start:
  %all = add i64 %count, 1
  %values = alloca [2 x i64], i64 %all, align 8
  %tensors = alloca [6 x i64], i64 %all, align 8
  %state = alloca [2 x i64], align 8
  %result = alloca [2 x i64], align 8
  %former = alloca ptr
  store [2 x i64] [i64 4294967295, i64 0], ptr %state
  store [2 x i64] zeroinitializer, ptr %result
  store [2 x i64] [i64 1, i64 0], ptr %values
  %table = function
  %table.at = getelementptr i8, ptr %values, i64 8
  store ptr %table, ptr %table.at
  br label %argument

argument:
  %k = phi i64 [0, %start], [%behind, %next]
  %behind = add i64 %k, 1
  %done = icmp eq i64 %k, %count
  br i1 %done, label %stream, label %convert
convert:
  %fact.k = mul i64 %k, EACH
  %fact.word = add i64 %fact.k, HEAD
  %fact = getelementptr i64, ptr %record, i64 %fact.word
  %kind = load i64, ptr %fact
  %place = getelementptr ptr, ptr %args, i64 %k
  %value = getelementptr [2 x i64], ptr %values, i64 %behind
  store [2 x i64] [i64 7, i64 0], ptr %value
  %second = getelementptr i64, ptr %fact, i64 1
  %flags = load i64, ptr %second
  %is.tensor = icmp eq i64 %kind, 0
  br i1 %is.tensor, label %convert.tensor, label %convert.number
convert.tensor:
  %tensor = getelementptr [6 x i64], ptr %tensors, i64 %k
  %tensor.at = getelementptr i8, ptr %value, i64 8
  store ptr %tensor, ptr %tensor.at
  %lent = call i1 @tilelang_tensor(ptr %words, ptr %record, ptr %place, i64 %flags, ptr %tensor, ptr %state)
  br i1 %lent, label %next, label %otherwise
convert.number:
  %object = load ptr, ptr %place
  %low.at = getelementptr i64, ptr %fact, i64 2
  %low = load i64, ptr %low.at
  %high.at = getelementptr i64, ptr %fact, i64 3
  %high = load i64, ptr %high.at
  %fits = call i1 @tilelang_number(ptr %words, ptr %object, i64 %kind, i64 %low, i64 %high, ptr %value)
  br i1 %fits, label %next, label %otherwise
next:
  br label %argument

stream:
  %type = load i32, ptr %state
  %number.at = getelementptr i8, ptr %state, i64 4
  %number = load i32, ptr %number.at
  %stream.at = getelementptr i8, ptr %state, i64 8
  %current = load ptr, ptr %stream.at
  %on.device = icmp ne i32 %type, -1
  %TVMFFIEnvSetStream = process
  br i1 %on.device, label %set, label %launch
set:
  %unset = call i32 %TVMFFIEnvSetStream(i32 %type, i32 %number, ptr %current, ptr %former)
  br label %launch
launch:
  %TVMFFIFunctionCall = process
  %host = function
  %PyEval_SaveThread = process
  %PyEval_RestoreThread = process
  %all.32 = trunc i64 %all to i32
  %thread = call ptr %PyEval_SaveThread()
  %status = call i32 %TVMFFIFunctionCall(ptr %host, ptr %values, i32 %all.32, ptr %result)
  call void %PyEval_RestoreThread(ptr %thread)
  br i1 %on.device, label %reset, label %finish
reset:
  %before = load ptr, ptr %former
  %again = call i32 %TVMFFIEnvSetStream(i32 %type, i32 %number, ptr %before, ptr null)
  br label %finish
finish:
  %raised = icmp ne i32 %status, 0
  br i1 %raised, label %refused, label %returned
returned:
  %answer.at = getelementptr i8, ptr %result, i64 8
  %answer = load i64, ptr %answer.at
  %declined = icmp eq i64 %answer, OTHERWISE
  br i1 %declined, label %otherwise, label %none
none:
  %None = process
  %Py_IncRef = process
  call void %Py_IncRef(ptr %None)
  ret ptr %None

otherwise:
  %otherwise.is = function otherwise
  %PyObject_Vectorcall = process
  %other = call ptr %PyObject_Vectorcall(ptr %otherwise.is, ptr %args, i64 %given, ptr %names)
  ret ptr %other
refused:
  %refused.is = function refused
  %call.refused = process PyObject_Vectorcall
  %error = call ptr %call.refused(ptr %refused.is, ptr %args, i64 %given, ptr null)
  ret ptr %error
}

define i32 @__tvm_ffi_tilelang_entry(ptr %self, ptr %args, i32 %count, ptr %result) {
  %words.at = getelementptr i8, ptr %args, i64 8
  %words = load ptr, ptr %words.at
  store ptr %words, ptr @words.place
  store i64 1, ptr %result
  %content = getelementptr i8, ptr %result, i64 8
  store ptr @tilelang_call, ptr %content
  ret i32 0
}
"""


def entry_text() -> str:
    """LLVM's text of the entry, and of a packed function that takes the address of the words of the process and gives the entry's."""

    def load(found: re.Match[str]) -> str:
        result, base, word = found[1], found[2], found[3] or found[1]
        words, k = ("words", _PROCESS[word]) if base == "process" else ("record", _HEAD.index(word))
        return f"  %{result}.place = getelementptr i64, ptr %{words}, i64 {k}\n  %{result} = load ptr, ptr %{result}.place"

    text = _TEXT
    for word, value in {"HEAD": len(_HEAD), "EACH": _EACH, "OTHERWISE": OTHERWISE}.items():
        text = re.sub(rf"\b{word}\b", str(value), text)
    return re.sub(r"  %([\w.]+) = (process|function)(?: (\w+))?(?=\n)", load, text)


# ---------------------------------------------------------------- the builtin function
class _Method(ctypes.Structure):
    """`PyMethodDef` of Python."""

    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


class Exchange(ctypes.Structure):
    """`DLPackExchangeAPI` of dlpack.h."""

    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("previous", ctypes.c_void_p), ("allocate", ctypes.c_void_p),
        ("export", ctypes.c_void_p), ("take", ctypes.c_void_p), ("borrow", ctypes.c_void_p), ("current_stream", ctypes.c_void_p),
    ]  # fmt: skip


@dataclass(frozen=True)
class HostFunction:
    """function: TVM's. table: its first argument. machine: from `machine_of`. keep: what the table needs."""

    function: Any
    table: int
    machine: str
    keep: Any


class _Record(int):
    """The address of the words of one function. keep: what they point to; Python's collector sees it."""

    keep: tuple[Any, ...]


_FAST, _KEYWORDS = 0x80, 0x02  # METH_FASTCALL, METH_KEYWORDS
_new_function = ctypes.pythonapi.PyCFunction_NewEx
_new_function.restype, _new_function.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


_kept: list[Any] = []  # what the entry needs


@functools.cache
def exchange(kind: type) -> Exchange | None:
    """The C table of a class of tensors, or None if its library publishes none."""
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    table = Exchange.from_address(_pointer(capsule, b"dlpack_exchange_api"))
    return table if table.major == 1 and table.borrow and table.current_stream else None


@functools.cache
def _entry(machine: str) -> int:
    """The address of the entry, compiled once in a process. machine: from `machine_of`."""
    python = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in _PYTHON]
    values = [*python, *map(ffi_function, _FFI), *map(id, _OBJECTS.values())]
    words = (ctypes.c_int64 * len(values))(*values)
    start = module_of_text(entry_text(), machine)["tilelang_entry"]
    _kept.append((words, start))
    return int(start(ctypes.addressof(words)))


@functools.cache
def _again() -> Callable[[], Any]:
    """A function of TVM that raises the error that the thread's last one left."""
    fail = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(lambda *_: -1)
    return ffi.Function.__from_extern_c__(ctypes.cast(fail, ctypes.c_void_p).value, keep_alive_object=fail)


def is_possible(kind: type) -> bool:
    """Can tensors of this class be taken so? In CPython with its lock an object is known by its address."""
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    return sys.implementation.name == "cpython" and locked and exchange(kind) is not None


def python_function(
    host: HostFunction, kinds: tuple[type, type], arguments: Sequence[Argument], otherwise: Callable[..., Any],
    failed: Callable[[Sequence[Any], Exception], Any],
) -> Callable[..., Any]:  # fmt: skip
    """A builtin function. kinds: a class of tensors, and its subclass that is taken, too. otherwise, failed: as `Launcher.python_function`
    has them."""
    lender = exchange(kinds[0])
    assert lender is not None
    is_neg = getattr(kinds[0], "is_neg", None)

    def refused(*args: Any) -> Any:
        try:
            return _again()()
        except Exception as error:
            return failed(args, error)

    head = {
        "otherwise": id(otherwise), "refused": id(refused), "count": len(arguments), "host": host.function.__chandle__(),
        "table": host.table, "class": id(kinds[0]), "subclass": id(kinds[1]), "borrow": lender.borrow,
        "current_stream": lender.current_stream, "is_neg": id(is_neg),
    }  # fmt: skip
    words = [head[name] for name in _HEAD]
    for argument in arguments:
        flags = _GRADIENT * (not argument.gradient) | _NEGATION * (not argument.negation) | _OVERLAP * (not argument.overlap)
        words += [_KINDS.index(argument.kind), flags, argument.low, argument.high]
    memory = (ctypes.c_int64 * len(words))(*words)
    method = _Method(b"kernel", _entry(host.machine), _FAST | _KEYWORDS, None)
    record = _Record(ctypes.addressof(memory))
    record.keep = (memory, method, otherwise, refused, kinds, is_neg, host)
    return _new_function(ctypes.addressof(method), record, None)
