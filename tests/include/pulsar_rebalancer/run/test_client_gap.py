from pulsar_rebalancer.run.outcome import ClientGap, ClientGapSummary

NOBODY, UNKNOWN = ClientGap(clients_before=0, topics=0), ClientGap(owner_seconds=0.1, unknown="b:1 did not answer")
MISSING = ClientGap(clients_before=5, clients_back=3, watched_seconds=15.04, topics=300, topics_measured=10, errors=1)


def back(seconds: float) -> ClientGap:
    return ClientGap(clients_before=2, clients_back=2, clients_seconds=seconds, watched_seconds=seconds, errors=0)


def test_several_moves_are_summed_up() -> None:
    seconds = [float(number) for number in range(1, 21)]
    found = ClientGapSummary.from_gaps([*map(back, reversed(seconds)), NOBODY, MISSING, UNKNOWN, None])

    assert found == ClientGapSummary(
        moves=24, unknown=2, not_back=1, median_seconds=10.5, p95_seconds=19, longest_seconds=20, errors=1
    )
    assert found.sentence == (
        "clients were away for a median of 10.5 s and at most 20.0 s; after 1 of 24 moves, some clients had not "
        "reconnected; for 2 of 24 moves, clients could not be counted; 1 topic returned an error"
    )
