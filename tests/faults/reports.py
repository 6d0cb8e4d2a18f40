"""What the emulator must say about each kind of planted fault, and where it can only see wrong values."""

from __future__ import annotations

# Reports about memory name it, and two lines: the one that does something and the one before it, where there is one.
PAIR = (
    r"race on \w+: .*(has written|has read|different values)|has not landed|while .* is reading it|with no proxy fence"
    r"|a product in flight uses"
)
DATA = PAIR + r"|nobody has written|which it has not written|accesses element|has overwritten|reaches element"
CLUSTER = (
    r"block \d+ of the cluster ends, and none of its warps has waited|of the cluster, which has ended|which may not have initialised it yet"
    r"|names block \d+ of a cluster of \d+"
)
WAIT = (
    r"deadlock: \d+ of \d+ warps wait for ever|whose phase expects|barrier \S+ does not exist|more than were copied|less than were copied"
    "|" + CLUSTER
)
PART = r"not all threads of the block reach|threads arrive at barrier|" + WAIT
END = r"the block ends while a bulk store|a warp ends while|nobody has waited for a copy"
WHOLE = r"its warpgroup executes|of a warpgroup executed"
SHAPE = r"which is no multiple|no multiple of 128|inside of a swizzle pattern|multiples of 16"

REPORTS = {
    "barrier dropped": DATA + "|" + WAIT,
    "barrier reached by a part": f"{PART}|{DATA}",
    "barrier for more threads": PART,
    "wait for copies dropped": DATA,
    "wait for copies too weak": DATA,
    "copies swapped with their wait": DATA,
    "commit of copies dropped": DATA,
    "copy dropped": DATA,
    "copy to the next place": f"{DATA}|{SHAPE}",
    "copy from the next place": f"{DATA}|{SHAPE}",
    "instruction dropped": DATA,
    "instruction with a wrong address": f"{DATA}|{SHAPE}",
    "store shifted": DATA,
    "load shifted": f"{DATA}|{SHAPE}",
    "swizzle on one side": DATA,
    "store to shared memory dropped": DATA,
    "store to registers dropped": DATA,
    "buffers overlap": DATA,
    "guard dropped": f"{PART}|{DATA}|{END}|{SHAPE}|{CLUSTER}",
    "one turn more": f"{PART}|{DATA}|{END}|{SHAPE}",
    "one turn less": f"{PART}|{DATA}|{END}|{WHOLE}",
    "arrive dropped": WAIT,
    "arrive twice": f"{WAIT}|{DATA}",
    "arrive by one lane less": WAIT,
    "arrive at another barrier": f"{WAIT}|{DATA}",
    "wait dropped": f"{WAIT}|{DATA}",
    "wait at another barrier": f"{WAIT}|{DATA}",
    "wrong parity": f"{WAIT}|{DATA}",
    "too many arrivals expected": WAIT,
    "too few arrivals expected": f"{WAIT}|{DATA}",
    "atomic update dropped": "",
    "bulk load dropped": f"{WAIT}|{DATA}",
    "bulk load twice": f"{WAIT}|{DATA}",
    "bulk load signals another barrier": f"{WAIT}|{DATA}",
    "bulk load to the next place": f"{SHAPE}|{DATA}",
    "bulk load from the next place": SHAPE,
    "bulk load with another swizzle": SHAPE,
    "expected bytes dropped": f"{WAIT}|{DATA}",
    "too many bytes expected": WAIT,
    "too few bytes expected": f"{WAIT}|{DATA}",
    "bytes expected of another barrier": f"{WAIT}|{DATA}|{END}",
    "load for one block of the cluster": f"{WAIT}|{DATA}",
    "load for no block of the cluster": "of no block",
    "load for a block too many": "names block 2 of a cluster of 2",
    "arrive at one block of the cluster": f"{WAIT}|{DATA}",
    "arrive at a block outside of the cluster": "names block 2 of a cluster of 2",
    "barrier of the block alone": "which may not have initialised it yet",
    "proxy fence dropped": "with no proxy fence",
    "bulk store dropped": "",
    "bulk store to the next place": SHAPE,
    "bulk store with another swizzle": SHAPE,
    "bulk store that adds, or no more": "",
    "bulk group not closed": "while a bulk store is reading",
    "bulk wait dropped": f"while a bulk store is reading|{PAIR}",
    "bulk wait too weak": f"while a bulk store is reading|{PAIR}",
    "product dropped": f"{DATA}|{WAIT}",
    "product by three warps": WHOLE,
    "product forgets or keeps": DATA,
    "product of another matrix": f"{DATA}|{SHAPE}",
    "product of other rows": f"{DATA}|{SHAPE}",
    "product fence dropped": "before any fence of registers|stored since the last fence",
    "product group not closed": f"{DATA}|{END}",
    "product wait dropped": f"{DATA}|{END}",
    "product wait too weak": f"{DATA}|{END}",
}

# Faults that leave every access allowed: only the values show them, everywhere or at some places.
VALUES = {
    "copy dropped", "copy to the next place", "copy from the next place", "instruction dropped", "instruction with a wrong address",
    "store shifted", "load shifted", "swizzle on one side", "store to shared memory dropped", "store to registers dropped", "guard dropped",
    "one turn more", "one turn less", "atomic update dropped", "bulk load from the next place", "bulk load with another swizzle",
    "bulk load to the next place", "bulk store dropped", "bulk store to the next place", "bulk store with another swizzle",
    "bulk store that adds, or no more",
    "product dropped", "product forgets or keeps", "product of another matrix", "product of other rows", "buffers overlap",
}  # fmt: skip
