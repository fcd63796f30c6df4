"""dlfs order and bench."""

import json

import pytest

MODES = ("sequential", "full", "chunk")


def order(cli, volume, *options):
    text = cli("order", str(volume), *map(str, options)).stdout.decode()
    batches = [[int(word) for word in line.split(" ")] for line in text.splitlines()]
    as_json = cli("order", "--json", str(volume), *map(str, options)).stdout.decode()
    assert [json.loads(line) for line in as_json.splitlines()] == batches
    return batches


@pytest.mark.parametrize("mode", MODES)
def test_an_epoch_is_a_permutation_cut_into_batches(cli, packed, mode):
    _, volume, files = packed
    n = len(files)
    batches = order(cli, volume, "--mode", mode, "--seed", 3, "--epoch", 1, "--batch", 96)
    assert [len(b) for b in batches] == [96] * (n // 96) + ([n % 96] if n % 96 else [])
    assert sorted(i for b in batches for i in b) == list(range(n))
    if mode == "sequential":
        assert [i for b in batches for i in b] == list(range(n))


@pytest.mark.parametrize("mode", ("full", "chunk"))
def test_orders_differ_by_seed_and_epoch_and_never_else(cli, packed, mode):
    _, volume, _ = packed
    seen = [order(cli, volume, "--mode", mode, "--seed", seed, "--epoch", epoch) for seed in (0, 1) for epoch in (0, 1)]
    for i, one in enumerate(seen):
        assert all(one != other for other in seen[:i])
    assert order(cli, volume, "--mode", mode, "--seed", 1, "--epoch", 1) == seen[-1]


@pytest.mark.parametrize("mode", MODES)
def test_ranks_share_every_batch(cli, packed, mode):
    _, volume, _ = packed
    common = ("--mode", mode, "--seed", 5, "--batch", 120, "--window", 2)
    whole = order(cli, volume, *common)
    for ranks in (2, 3, 8):
        shares = [order(cli, volume, *common, "--rank", rank, "--ranks", ranks) for rank in range(ranks)]
        for g, batch in enumerate(whole):
            parts = [share[g] for share in shares]
            assert sorted(i for part in parts for i in part) == sorted(batch)
            assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_tail_policies(cli, packed):
    _, volume, files = packed
    n = len(files)
    full = n // 500
    assert [len(b) for b in order(cli, volume, "--batch", 500, "--tail", "drop")] == [500] * full
    assert [len(b) for b in order(cli, volume, "--batch", 500, "--tail", "short")] == [500] * full + [n % 500]
    assert [len(b) for b in order(cli, volume, "--batch", 500, "--tail", "pad")] == [500] * (full + 1)


def test_start_and_limit_cut_the_same_order(cli, packed):
    _, volume, _ = packed
    whole = order(cli, volume, "--batch", 50)
    assert order(cli, volume, "--batch", 50, "--limit", 3) == whole[:3]
    assert order(cli, volume, "--batch", 50, "--start", 7, "--limit", 2) == whole[7:9]


def test_order_errors_name_what_would_do(cli, packed):
    _, volume, _ = packed
    failed = cli("order", str(volume), "--batch", "256", "--ranks", "7", "--rank", "0", code=2)
    assert failed.stderr.startswith(b"dlfs: ")
    cli("order", str(volume), "--batch", "14", "--ranks", "7", "--rank", "7", code=2)
    lanes = cli("order", str(volume), "--batch", "14", "--ranks", "7", "--mode", "chunk", code=2)
    assert b"238" in lanes.stderr or b"245" in lanes.stderr
    cli("order", str(volume), "--mode", "random", code=2)
    cli("order", str(volume), "--batch", "0", code=2)


BENCH_KEYS = {"samples_per_s", "bytes_per_s", "batch_p50_ms", "batch_p99_ms", "cpu_s_per_million_samples", "raw_bytes_per_s", "samples", "distinct_samples"}


@pytest.mark.parametrize("mode", MODES)
def test_bench_json(cli, packed, mode):
    _, volume, files = packed
    result = json.loads(cli("bench", str(volume), "--json", "--mode", mode, "--batch", "64", "--cache", "8MiB", "--epochs", "2").stdout)
    assert BENCH_KEYS <= result.keys()
    assert result["samples"] == 2 * len(files) and result["distinct_samples"] == len(files)
    for key in BENCH_KEYS:
        assert result[key] > 0, key
    assert result["batch_p99_ms"] >= result["batch_p50_ms"]
    assert abs(result["samples"] / result["elapsed_s"] / result["samples_per_s"] - 1) < 0.01
    assert result["payload_bytes"] == 2 * (sum(map(len, files.values())) + 8 * len(files))
    assert result["memory_peak_bytes"] <= 8 << 20
    assert {"p50_us", "p95_us", "p99_us", "total_s"} == result["wait"].keys()


def test_bench_of_one_rank_and_with_copies(cli, packed):
    _, volume, files = packed
    half = json.loads(cli("bench", str(volume), "--json", "--rank", "1", "--ranks", "2", "--batch", "100", "--no-raw").stdout)
    assert half["samples"] == half["distinct_samples"] == len(files) // 2
    assert "raw_bytes_per_s" not in half
    copied = json.loads(cli("bench", str(volume), "--json", "--copy", "--no-direct").stdout)
    assert copied["samples"] == len(files)


def test_bench_for_a_time(cli, packed):
    _, volume, _ = packed
    result = json.loads(cli("bench", str(volume), "--json", "--seconds", "0.3").stdout)
    assert 0.3 <= result["elapsed_s"] < 5


def test_bench_text(cli, packed):
    _, volume, _ = packed
    text = cli("bench", str(volume)).stdout.decode()
    for word in ("samples/s", "raw device", "p50", "p99", "million samples", "amplification", "cache hits", "wait", "verification"):
        assert word in text


@pytest.mark.parametrize("mode", ["chunk", "full"])
def test_bench_advises(cli, packed, mode):
    _, volume, files = packed
    advice = json.loads(cli("bench", str(volume), "--advise", "--json", "--mode", mode, "--batch", "32", "--seconds", "0.05").stdout)
    assert advice["depth"] in [each["depth"] for each in advice["depths"]] and advice["window"] >= 1
    assert advice["cache_bytes"] >= 256 << 20
    assert set(advice["reasons"]) == {"depth", "cache_bytes", "window"} and all(advice["reasons"].values())
    again = json.loads(cli("bench", str(volume), "--json", "--mode", mode, "--batch", "32", "--no-raw", "--no-verify", "--depth", str(advice["depth"]),
                           "--cache", str(advice["cache_bytes"]), "--window", str(advice["window"])).stdout)
    assert again["distinct_samples"] == len(files)
    text = cli("bench", str(volume), "--advise", "--mode", mode, "--batch", "32", "--seconds", "0.05").stdout.decode()
    assert all(word in text for word in ("--depth", "--cache", "--window", "volume.batches(32"))
