"""The golden vectors are what docs/shuffling.md says. Runs under pytest and by itself (python3 test_order_reference.py)."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import order_reference as reference


def test_committed_vectors_are_what_the_specification_gives():
    assert reference.VECTORS.read_text() == reference.text()


def test_the_reference_draws_every_sample_once_and_alike_for_every_rank_count():
    for p in reference.epochs():
        order = [draw[0] for draw in reference.global_order(p)]
        assert sorted(order) == list(range(sum(p["sizes"])))
        alone = reference.shares(p, 0, 1)
        for ranks in (2, 3, 6):
            split = [reference.shares(p, rank, ranks) for rank in range(ranks)]
            for g, batch in enumerate(alone):
                assert sorted(sum((split[rank][g] for rank in range(ranks)), [])) == sorted(batch)


def test_another_constant_is_noticed():
    golden = reference.GOLDEN
    try:
        reference.GOLDEN = golden ^ 2
        assert reference.VECTORS.read_text() != reference.text()
    finally:
        reference.GOLDEN = golden


if __name__ == "__main__":
    for name, test in sorted(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"{name}: ok")
