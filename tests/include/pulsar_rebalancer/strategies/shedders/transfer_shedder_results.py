from pulsar_rebalancer.state import WHOLE_CLUSTER, HitCount


def hits(state):
    return state.hits.get(WHOLE_CLUSTER, HitCount()).low


def moved(result):
    """Moves as the vectors write them: sorted by source and bundle, with what was out of balance."""
    of_pair = {row.pair: row for row in result.decisions}
    rows = sorted((move.source, move.bundle, move.destination, move.pair) for move in result.moves if move.is_taken)
    return [(bundle, source, destination, _cause(of_pair[pair])) for source, bundle, destination, pair in rows]


def _cause(row):
    return "Overloaded" if row.value > row.bound else "Underloaded"
