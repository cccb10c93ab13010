"""Messages as bytes: what goes in comes out, and nothing else ever does."""

import struct
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fedmin
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.wire import HEADER, TYPES, Envelope, decode, encode, sizes

SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
ARRAYS = st.sampled_from([t.newbyteorder("=") for t in TYPES]).flatmap(
    lambda dtype: hnp.arrays(dtype, SHAPES)
)
MESSAGES = st.dictionaries(
    st.sampled_from(["model", "control", "update", "atom"]),
    ARRAYS | st.dictionaries(st.sampled_from("ab"), ARRAYS, max_size=2),
    max_size=3,
)
ENVELOPES = st.builds(
    Envelope,
    st.sampled_from(wire.KINDS),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**16 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.binary(min_size=8, max_size=8),
)
ONE = Envelope("reply", 3, 0, 7, 2, b"some run")
MESSAGE = {
    "update": np.array([1.5, -2.0]),
    "atom": fedmin.Sparse(np.array([4], np.int32), np.array([0.25]), 9),
}


def same(a, b) -> bool:
    ours, theirs = jax.tree.leaves(a), jax.tree.leaves(b)
    return jax.tree.structure(a) == jax.tree.structure(b) and all(
        u.dtype == v.dtype and u.shape == v.shape and u.tobytes() == v.tobytes()
        for u, v in zip(ours, theirs, strict=True)
    )


@given(ENVELOPES, MESSAGES)
def test_round_trip(envelope, message):
    data = encode(envelope, message)
    back, found = decode(data, message)
    assert back == envelope
    assert same(found, message)


@given(MESSAGES)
def test_sizes_are_the_encoded_length(message):
    found = sizes(message)
    assert sum(found.values()) == len(encode(ONE, message))
    assert set(found) == {"header", *message}
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), message)
    assert sizes(shapes) == found  # shapes alone are enough


def test_payload_and_device_arrays():
    data = encode(ONE, jax.tree.map(jnp.asarray, MESSAGE))
    assert same(decode(data, MESSAGE)[1], MESSAGE)
    assert sizes(MESSAGE)["atom"] == 4 + 8  # an index and a value, whatever the vector's length


def test_every_damaged_byte_is_refused():
    data = encode(ONE, MESSAGE)
    for place in range(len(data)):
        for change in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[place] ^= change
            with pytest.raises(ValueError, match=r"damaged|not a fedmin message"):
                decode(bytes(damaged), MESSAGE)


def test_every_truncation_is_refused():
    data = encode(ONE, MESSAGE)
    for length in range(len(data)):
        with pytest.raises(ValueError, match=r"at least 34 bytes|damaged"):
            decode(data[:length], MESSAGE)
    with pytest.raises(ValueError, match="damaged"):
        decode(data + b"\0", MESSAGE)


def sealed(body: bytes, count: int, kind: int = 1) -> bytes:
    """Any body under a header whose checksum fits: what a mistaken or hostile peer could send."""
    front = (wire.MAGIC, wire.VERSION, kind, 0, bytes(8), 0, 0, 0, count)
    return HEADER.pack(*front, zlib.crc32(HEADER.pack(*front, 0) + body)) + body


def test_the_last_kind_is_known_and_the_next_is_not():
    last = len(wire.KINDS) - 1
    assert decode(sealed(b"", 0, last), {})[0].kind == wire.KINDS[last]
    for kind in (last + 1, 255):
        with pytest.raises(wire.MessageError, match="not a fedmin message of version"):
            decode(sealed(b"", 0, kind), {})


def test_the_last_type_is_known_and_the_next_is_not():
    like = {"flag": np.zeros((), bool)}
    last = len(TYPES) - 1
    assert decode(sealed(struct.pack("<BB", last, 0) + b"\1", 1), like)[1]["flag"]
    with pytest.raises(wire.MessageError, match=f"no array type number {last + 1}"):
        decode(sealed(struct.pack("<BB", last + 1, 0) + b"\1", 1), like)


@given(st.binary(max_size=60), st.integers(0, 3))
def test_foreign_bodies_are_refused(body, count):
    like = {"update": np.zeros(2), "weight": np.zeros(())}
    try:
        _, found = decode(sealed(body, count), like)
    except ValueError:
        return
    assert [a.shape for a in jax.tree.leaves(found)] == [(2,), ()]


@pytest.mark.parametrize(
    ("body", "count", "said"),
    [
        (b"", 2, "expected 1 arrays, got 2"),
        (struct.pack("<BBI", 0, 1, 2) + bytes(8), 1, r"expected float64\[2\], got float32\[2\]"),
        (struct.pack("<BBI", 1, 1, 3) + bytes(24), 1, r"expected float64\[2\], got float64\[3\]"),
        (struct.pack("<BBI", 1, 1, 2) + bytes(17), 1, "1 bytes too many"),
        (struct.pack("<BBI", 1, 1, 2) + bytes(15), 1, "end too early"),
        (struct.pack("<BBI", 99, 1, 2) + bytes(16), 1, "type"),
        (struct.pack("<BB", 1, 200), 1, "ends too early"),
    ],
)
def test_wrong_contents_are_named(body, count, said):
    with pytest.raises(ValueError, match=said):
        decode(sealed(body, count), {"update": np.zeros(2)})


@pytest.mark.parametrize("data", [b"", b"hello", b"PK\x03\x04" + bytes(40), bytes(40)])
def test_other_formats_are_refused(data):
    with pytest.raises(ValueError, match=r"at least 34 bytes|not a fedmin message"):
        decode(data, MESSAGE)


def test_numbers_that_are_not_finite_are_refused_where_they_must_not_be():
    for bad in (np.nan, np.inf):
        data = encode(ONE, {"update": np.array([1.0, bad])})
        assert not np.isfinite(decode(data, {"update": np.zeros(2)})[1]["update"]).all()
        with pytest.raises(wire.NotFiniteError, match="not all of its numbers are finite"):
            decode(data, {"update": np.zeros(2)}, finite=True)


def test_types_that_cannot_travel():
    with pytest.raises(TypeError, match="complex128 cannot be sent"):
        encode(ONE, {"update": np.zeros(2, complex)})
