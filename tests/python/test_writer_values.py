"""Packing from Python: what goes in comes out, and what does not fit is named."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

dlfs = pytest.importorskip("dlfs")

few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def round_trip(path, samples, schema=None, **options):
    dlfs.pack(samples, path, schema, overwrite=True, **options)
    return dlfs.mount(path)


@few
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "data": st.binary(max_size=300),
                "text": st.text(st.characters(exclude_categories=["Cs"]), max_size=50),
                "whole": st.integers(-(2**63), 2**63 - 1),
                "real": st.floats(),
                "flag": st.booleans(),
            }
        ),
        min_size=1,
        max_size=20,
    )
)
def test_inferred_fields_come_back_exactly(tmp_path, samples):
    ds = round_trip(tmp_path / "v.dlfs", samples)
    kinds = {"data": "bytes", "text": "text", "whole": "int64", "real": "float64", "flag": "bool"}
    assert str(ds.schema) == ", ".join(f"{field}: {kinds[field]}" for field in samples[0])
    for got, given_sample in zip(ds, samples):
        assert got["data"] == given_sample["data"] and got["text"] == given_sample["text"]
        assert got["whole"] == given_sample["whole"] and got["flag"] == given_sample["flag"]
        assert got["real"] == given_sample["real"] or math.isnan(got["real"]) and math.isnan(given_sample["real"])


NUMPY = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 3), (2, 3)])
def test_arrays_of_every_dtype_come_back_exactly(tmp_path, dtype, shape):
    bits = np.random.default_rng(1).integers(0, 2, (5, *shape, 16), np.uint8)
    arrays = [np.asarray(each.sum(-1) * 3).astype(dtype) for each in bits]
    ds = round_trip(tmp_path / "v.dlfs", [{"x": array} for array in arrays])
    stacked = ds[:]["x"]
    assert stacked.dtype == np.dtype(dtype) and stacked.shape == (5, *shape)
    assert np.array_equal(stacked, np.stack(arrays))
    assert all(np.array_equal(got["x"], array) for got, array in zip(ds, arrays))


def test_other_memory_layouts_are_the_same_values(tmp_path):
    array = np.arange(24, dtype=np.int32).reshape(4, 6)
    variants = [array, np.asfortranarray(array), array.astype(">i4"), np.repeat(array, 2, 1)[:, ::2]]
    ds = round_trip(tmp_path / "v.dlfs", [{"x": each} for each in variants])
    assert all(np.array_equal(got["x"], array) for got in ds)


def test_bytes_like_values(tmp_path):
    values = [b"ab", bytearray(b"ab"), memoryview(b"ab"), memoryview(b"aXbX")[::2], np.frombuffer(b"ab", np.uint8)]
    ds = round_trip(tmp_path / "v.dlfs", [{"x": each} for each in values])
    assert ds[:]["x"].tolist() == [b"ab"] * 5


@pytest.mark.parametrize(
    "schema, value, complaint",
    [
        ("int64", 2**63, "9223372036854775808"),
        ("int64", -(2**63) - 1, "outside"),
        ("uint8", 256, "outside 0..255"),
        ("uint8", -1, "outside"),
        ("int64", 1.0, "float 1.0"),
        ("int64", True, "bool True"),
        ("int64", "1", "str '1'"),
        ("int64", None, "NoneType"),
        ("int64", np.array([1]), "ndarray"),
        ("bool", 1, "int 1"),
        ("float64", 1, "int 1"),
        ("float32", 0.1, "cannot hold exactly"),
        ("float32", 1e300, "cannot hold exactly"),
        ("float16", np.float64(1e6), "cannot hold exactly"),
        ("bytes", "text", "str 'text'"),
        ("bytes", 17, "int 17"),
        ("bytes", np.zeros(3, np.int32), "int32"),
        ("text", b"bytes", "bytes b'bytes'"),
        ("text", "\ud800", "surrogates"),
        ("uint8[2]", np.zeros(3, np.uint8), r"shape \(3,\)"),
        ("uint8[2]", np.zeros(2, np.int8), "int8"),
        ("uint8[2]", np.zeros((1, 2), np.uint8), "shape"),
        ("uint8[2]", [0, 0], "list"),
    ],
)
def test_a_misfit_names_sample_field_expected_and_got(tmp_path, schema, value, complaint):
    fits = {"int64": 1, "uint8": 1, "bool": True, "bytes": b"", "text": "", "uint8[2]": np.zeros(2, np.uint8)}
    with dlfs.Writer(tmp_path / "v.dlfs", {"id": int, "value": schema}) as writer:
        writer.write({"id": 0, "value": fits.get(schema, 0.5)})
        with pytest.raises(dlfs.SchemaError, match=complaint) as caught:
            writer.write({"id": 1, "value": value})
        assert "sample 1" in str(caught.value) and "'value'" in str(caught.value) and schema in str(caught.value)
        assert len(writer) == 1
        writer.write({"id": 1, "value": fits.get(schema, 0.5)})
    assert dlfs.mount(tmp_path / "v.dlfs")[:]["id"].tolist() == [0, 1]


def test_exact_values_of_narrower_kinds_are_no_misfit(tmp_path):
    samples = [{"f": 0.5, "i": np.int8(-3)}, {"f": np.float32(0.1), "i": np.uint64(7)}, {"f": float("nan"), "i": 5}, {"f": math.inf, "i": np.array(2)}]
    ds = round_trip(tmp_path / "v.dlfs", samples, "f: float32, i: int16")
    assert ds[:]["i"].tolist() == [-3, 7, 5, 2]
    assert ds[0]["f"] == 0.5 and ds[1]["f"] == np.float32(0.1) and math.isnan(ds[2]["f"]) and ds[3]["f"] == math.inf


def test_missing_and_unknown_fields_are_named(tmp_path):
    with dlfs.Writer(tmp_path / "v.dlfs", "a: int64, b: int64") as writer:
        with pytest.raises(dlfs.SchemaError, match="sample 0 has no field 'b'"):
            writer.write({"a": 1})
        with pytest.raises(dlfs.SchemaError, match="'c'"):
            writer.write({"a": 1, "b": 2, "c": 3})


@pytest.mark.parametrize("schema", ["", "x", "x: what", "x: int64, x: int64", "x: int64[", {"x": object()}, {"x": "nothing"}])
def test_a_schema_that_makes_no_sense_is_refused(tmp_path, schema):
    with pytest.raises(dlfs.Error):
        dlfs.Writer(tmp_path / "v.dlfs", schema)


def test_schemas_by_dict(tmp_path):
    schema = {"a": bytes, "b": str, "c": int, "d": float, "e": bool, "f": "uint8[2,3]", "g": np.int16, "h": (np.float32, (4,)), "i": np.dtype("f2")}
    with dlfs.Writer(tmp_path / "v.dlfs", schema) as writer:
        assert str(writer.schema) == "a: bytes, b: text, c: int64, d: float64, e: bool, f: uint8[2,3], g: int16, h: float32[4], i: float16"


def test_what_cannot_be_inferred_is_named(tmp_path):
    with dlfs.Writer(tmp_path / "v.dlfs") as writer:
        with pytest.raises(dlfs.SchemaError, match="'x'.*object"):
            writer.write({"x": object()})
        writer.write({"x": 1})


def test_bfloat16_comes_back_bit_by_bit(tmp_path):
    torch = pytest.importorskip("torch")
    from dlfs.torch import Loader

    expected = torch.tensor([[1.5, -2.0, 3e38]], dtype=torch.bfloat16)
    dtype = dlfs.Schema.parse("x: bfloat16[3]")["x"].numpy_dtype
    value = expected[0].view(torch.int16).numpy().view(dtype)
    round_trip(tmp_path / "v.dlfs", [{"x": value}], "x: bfloat16[3]")
    assert torch.equal(next(iter(Loader(tmp_path / "v.dlfs", 1)))["x"], expected)


@few
@given(st.lists(st.binary(min_size=1, max_size=200).filter(lambda b: 0 not in b), min_size=1, max_size=30, unique=True))
def test_names_are_any_bytes(tmp_path, names):
    ds = round_trip(tmp_path / "v.dlfs", [(each, {"x": i}) for i, each in enumerate(names)])
    for i, each in enumerate(names):
        text = each.decode("utf-8", "surrogateescape")
        assert ds[each]["x"] == i and ds.name(i) == text and ds.find(text) == i and text in ds
    assert [each.encode("utf-8", "surrogateescape") for each in ds.names()] == names


def test_names_are_for_all_samples_or_none(tmp_path):
    with dlfs.Writer(tmp_path / "a.dlfs") as writer:
        writer.write({"x": 1}, "one")
        with pytest.raises(dlfs.SchemaError, match="no name"):
            writer.write({"x": 2})
        with pytest.raises(dlfs.InvalidArgumentError, match="empty"):
            writer.write({"x": 2}, "")
    with dlfs.Writer(tmp_path / "b.dlfs") as writer:
        writer.write({"x": 1})
        with pytest.raises(dlfs.SchemaError, match="a name"):
            writer.write({"x": 2}, "two")
    ds = dlfs.mount(tmp_path / "b.dlfs")
    assert ds.name(0) == "" and list(ds.names()) == [""]
    with pytest.raises(dlfs.NotFoundError):
        ds["two"]


def test_two_samples_with_one_name_are_refused(tmp_path):
    path = tmp_path / "v.dlfs"
    with pytest.raises(dlfs.Error, match="twice|same") as caught:
        dlfs.pack([("twice", {"x": 1}), ("other", {"x": 2}), ("twice", {"x": 3})], path)
    assert caught.value.code == "duplicate name" and not path.exists() and not list(tmp_path.iterdir())


def test_an_existing_destination_is_kept_without_overwrite(tmp_path):
    path = tmp_path / "v.dlfs"
    path.write_bytes(b"precious")
    with pytest.raises(dlfs.ExistsError) as caught:
        dlfs.pack([{"x": 1}], path)
    assert isinstance(caught.value, FileExistsError) and path.read_bytes() == b"precious"
    dlfs.pack([{"x": 1}], path, overwrite=True)
    assert dlfs.mount(path)[0]["x"] == 1


def test_an_exception_leaves_the_destination_as_it_was(tmp_path):
    path = tmp_path / "v.dlfs"
    dlfs.pack([{"x": 1}], path)
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error):
            with dlfs.Writer(path, overwrite=True) as writer:
                writer.write({"x": 2})
                raise error
        assert [p.name for p in tmp_path.iterdir()] == ["v.dlfs"] and dlfs.mount(path)[0]["x"] == 1
    with pytest.raises(ValueError, match="closed"):
        writer.write({"x": 3})
    with pytest.raises(ValueError, match="closed"):
        writer.commit()


def test_nothing_is_visible_before_the_commit(tmp_path):
    path = tmp_path / "v.dlfs"
    writer = dlfs.Writer(path)
    assert [writer.write({"x": i}) for i in range(10)] == list(range(10))
    assert not path.exists()
    with pytest.raises(dlfs.Error, match="incomplete"):
        dlfs.mount(path)
    writer.commit()
    assert len(dlfs.mount(path)) == 10
    writer.abort()
    assert len(dlfs.mount(path)) == 10


def test_a_forgotten_writer_leaves_nothing(tmp_path):
    writer = dlfs.Writer(tmp_path / "v.dlfs")
    writer.write({"x": 1})
    del writer
    assert not list(tmp_path.iterdir())


def test_an_empty_volume_needs_a_schema(tmp_path):
    with pytest.raises(dlfs.InvalidArgumentError, match="schema"):
        with dlfs.Writer(tmp_path / "v.dlfs"):
            pass


def test_attributes(tmp_path):
    attributes = {"classes": ["a b", "ü"], "text": "as it is", "number": 3, "table": {"x": [1, 2]}, "none": None}
    ds = round_trip(tmp_path / "v.dlfs", [{"x": 1}], attributes=attributes)
    assert ds.classes == ["a b", "ü"]
    assert ds.attributes == {"classes": "a b\0ü", "text": "as it is", "number": "3", "table": '{"x": [1, 2]}', "none": "null"}
    with pytest.raises(dlfs.InvalidArgumentError):
        dlfs.Writer(tmp_path / "w.dlfs", attributes={"x": object()})


def test_placement_is_shuffled_by_the_seed_and_ids_keep_the_order_of_the_source(tmp_path):
    samples = [{"x": bytes([i % 256]) * 1000, "i": i} for i in range(2000)]

    def first_chunk(**options):
        ds = round_trip(tmp_path / "v.dlfs", samples, **options)
        assert ds[:]["i"].tolist() == list(range(2000))
        return next(ds.order(100, shuffle="chunk", lanes=1))

    assert np.ptp(first_chunk(shuffle=False)) < 300
    mixed = first_chunk(seed=1)
    assert np.ptp(mixed) > 1000 and np.array_equal(mixed, first_chunk(seed=1))
    assert not np.array_equal(mixed, first_chunk(seed=2))


@pytest.mark.parametrize("length", [600, 2000])
def test_a_sorted_source_drifts_at_no_time_of_an_epoch(tmp_path, length):
    """Chunks are cut between lanes: were the records of a chunk in the source's order, an epoch would begin with late ids."""
    n = 24000
    ds = round_trip(tmp_path / "v.dlfs", ({"x": bytes(length)} for _ in range(n)), chunk_bytes=64 << 10)
    for epoch in range(2):
        for part in np.array_split(np.concatenate(list(ds.order(240, shuffle="chunk", epoch=epoch))), 20):
            expected, deviation = (n - 1) / 2, n / np.sqrt(12 * len(part))
            assert abs(part.mean() - expected) < 5 * deviation


def test_numpy_texts_are_texts(tmp_path):
    names = np.array(["a", "bé"])
    dlfs.pack(({"text": each, "raw": np.bytes_(b"ab")} for each in names), tmp_path / "v")
    with dlfs.mount(tmp_path / "v") as ds:
        assert str(ds.schema) == "text: text, raw: bytes" and [s["text"] for s in ds] == ["a", "bé"]


@pytest.mark.parametrize(
    "value",
    [
        np.array([1, "a"], object),
        np.array(["ab", "c"]),
        np.datetime64("2020-01-01"),
        np.zeros(2, [("a", "i4")]),
        np.longdouble(1),
        np.ma.array([1, 2], mask=[0, 1]),
        [1, 2],
        None,
    ],
)
def test_what_has_no_place_in_a_schema_names_sample_and_field(tmp_path, value):
    with pytest.raises(dlfs.SchemaError, match="sample 0: field 'x' is .* no place in a schema"):
        dlfs.pack([{"x": value}], tmp_path / "v")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("schema", ["x: int64[2]", "x: bytes"])
def test_a_mask_is_not_dropped(tmp_path, schema):
    value = np.ma.array([1, 2], mask=[0, 1], dtype=np.uint8 if schema == "x: bytes" else np.int64)
    with pytest.raises(dlfs.SchemaError, match="mask|Mask"):
        dlfs.pack([{"x": value}], tmp_path / "v", schema)


@pytest.mark.parametrize(
    "samples, error, words",
    [
        ([5], dlfs.SchemaError, "sample 0 must be a dict"),
        ([["a", {"x": 1}]], dlfs.SchemaError, "sample 0 must be a dict"),
        ([{}], dlfs.SchemaError, "sample 0 has no fields"),
        ([("a", {"x": 1}), ("b", {"x": 1}, 3)], dlfs.InvalidArgumentError, "sample 1 .* tuple of 3"),
        ([(5, {"x": 1})], dlfs.InvalidArgumentError, "the name of sample 0 must be a str or bytes"),
        ([("\ud800", {"x": 1})], dlfs.InvalidArgumentError, "the name of sample 0 .* surrogate"),
        ([{5: 1}], dlfs.InvalidArgumentError, "names of fields are str"),
        ([{"a: int64, b": 1}], dlfs.InvalidArgumentError, "cannot be the name of a field"),
        ([{" a": 1}], dlfs.InvalidArgumentError, "cannot be the name of a field"),
    ],
)
def test_odd_samples_are_explained(tmp_path, samples, error, words):
    with pytest.raises(error, match=words):
        dlfs.pack(samples, tmp_path / "v")
    assert list(tmp_path.iterdir()) == []


def test_a_schema_of_another_kind_is_explained(tmp_path):
    with pytest.raises(dlfs.InvalidArgumentError, match="a schema is a text"):
        dlfs.Writer(tmp_path / "v", [("x", "int64")])


def test_a_misfit_name_adds_nothing(tmp_path):
    with dlfs.Writer(tmp_path / "v") as writer:
        with pytest.raises(dlfs.InvalidArgumentError):
            writer.write({"x": 1}, 5)
        assert writer.schema is None and writer.write({"y": 2.5}, "b") == 0
    with dlfs.mount(tmp_path / "v") as ds:
        assert list(ds.names()) == ["b"] and ds[0]["y"] == 2.5
