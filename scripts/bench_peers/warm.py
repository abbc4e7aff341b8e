"""How soon the first token of a prompt comes again: python warm.py MODEL TOKENS RUNS."""

from __future__ import annotations

import statistics
import sys

import phyla
from phyla.benchmark import random_ids, time_first_token


def main() -> None:
    source, count, runs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with phyla.load(source) as engine:
        size = engine.tokenizer.vocab_size
        time_first_token(engine, random_ids(32, vocab_size=size, seed=0))
        timed = [
            time_first_token(engine, random_ids(count, vocab_size=size, seed=seed))
            for seed in range(1, runs + 1)
        ]
    cold = statistics.median(each.cold for each in timed)
    warm = statistics.median(each.warm for each in timed)
    print(f"first token of {count} tokens: computed {cold:.2f} s, remembered {warm:.3f} s")
    print(f"remembered is {100 * warm / cold:.2f} % of computed (medians of {runs})")


if __name__ == "__main__":
    main()
