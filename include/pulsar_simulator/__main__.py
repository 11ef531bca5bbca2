"""`python -m pulsar_simulator`: a simulated cluster that runs until it is stopped."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path

from pulsar_simulator.cluster import Cluster, ClusterSpec
from pulsar_simulator.faults import FAULT_INFOS
from pulsar_simulator.http import Auth, new_token, write_token
from pulsar_simulator.load import NO_NOISE, Noise
from pulsar_simulator.ownership import PlacementStrategy
from pulsar_simulator.sampling import Timing
from pulsar_simulator.scenario import HOT_SCORE, spec
from pulsar_simulator.serve import BrokerServer
from pulsar_simulator.timeline import RealClock

TOKEN_VARIABLE = "PULSAR_SIMULATION_TOKEN"


def _parser() -> argparse.ArgumentParser:
    faults = "\n".join(f"  {kind:22} {info.meaning}" for kind, info in FAULT_INFOS.items())
    parser = argparse.ArgumentParser(
        prog="python -m pulsar_simulator",
        description="Simulated Pulsar brokers under load: one hot, one empty, the others unevenly in between. "
        "They serve the admin REST API of Pulsar's modular load manager on loopback.",
        epilog=f"""The super-user token is read from --token-file. If that file does not exist, it is created, readable
only by its owner, with the token in ${TOKEN_VARIABLE} or a new one.

Control, with the same token, on any live broker:
  GET    /simulation/state                                  actual loads, scores, owners and faults
  POST   /simulation/faults    {{"kind": …, "broker": …}}     also bundle, path, amount, times, target, values
  DELETE /simulation/faults[?kind=…&broker=…]
  POST   /simulation/load      {{"factor": 2, "bundle": …}}   or "broker": its bundles; neither: all
  POST   /simulation/leader    {{"broker": …}}
  POST   /simulation/brokers/<brokerId>/kill|start|restart

Kinds of faults:
{faults}
""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--brokers", type=int, default=8, metavar="N", help="number of brokers (8)")
    add("--bundles", type=int, default=200, metavar="N", help="number of bundles in all namespaces (200)")
    add("--seed", type=int, default=1, metavar="N", help="random seed (1)")
    add("--hot-score", type=float, default=HOT_SCORE, metavar="P", help="score of the hot broker, percent (85)")
    add("--host", default="127.0.0.1", help="listening address and host in brokerIds (127.0.0.1)")
    add("--port", type=int, default=0, metavar="N", help="first of consecutive ports; 0: any free ports (0)")
    add("--token-file", type=Path, required=True, metavar="FILE", help="file of the super-user token")
    add("--user-token-file", type=Path, metavar="FILE", help="output file for a token without super-user rights")
    add("--ready-file", type=Path, metavar="FILE", help="JSON file, written when all brokers answer, removed at exit")
    add("--name", default="simulated", help="cluster name (simulated)")
    add("--version", default="4.2.4", help="reported Pulsar version (4.2.4)")
    add("--stats-period", type=float, default=5.0, metavar="S", help="seconds between updates of bundle statistics (5)")
    add("--host-check-period", type=float, default=5.0, metavar="S", help="seconds between cpu samples (5)")
    add("--session-timeout", type=float, default=8.0, metavar="S", help="seconds until a killed broker is noticed (8)")
    add(
        "--placement",
        choices=list(PlacementStrategy),
        default=PlacementStrategy.LEAST_LOADED,
        type=PlacementStrategy,
        help="how a bundle unloaded without a destination is placed (least_loaded)",
    )
    add("--affinity-by-range", action="store_true", help="store destinations only by hash range, as in 4.0.8")
    add("--scalable-topics", action="store_true", help="half of the topics are segments of scalable topics (5.0)")
    add("--quiet", action="store_true", help="constant load, without noise or drift")
    add("--ssl-certfile", type=Path, metavar="FILE", help="PEM file of the certificate; the brokers then use https")
    add("--ssl-keyfile", type=Path, metavar="FILE", help="PEM file of the private key")
    return parser


def _cluster_spec(args: argparse.Namespace) -> ClusterSpec:
    shape = spec(
        brokers=args.brokers,
        bundles=args.bundles,
        seed=args.seed,
        hot_score=args.hot_score,
        scalable=args.scalable_topics,
        noise=NO_NOISE if args.quiet else Noise(),
        timing=Timing(
            stats_period=args.stats_period,
            host_check_period=args.host_check_period,
            session_timeout=args.session_timeout,
        ),
    )
    shape.name, shape.version = args.name, args.version
    shape.placement, shape.affinity_by_range = args.placement, args.affinity_by_range
    shape.uses_tls = args.ssl_certfile is not None
    return shape


def _read_token(path: Path) -> str:
    if path.exists():
        return path.read_text().strip()
    token = os.environ.get(TOKEN_VARIABLE) or new_token()
    write_token(path, token)
    return token


def main(arguments: list[str] | None = None) -> int:
    """Run a simulated cluster until SIGTERM or SIGINT arrives, and return the exit code."""
    parser = _parser()
    args = parser.parse_args(arguments)
    try:
        cluster = Cluster(_cluster_spec(args), RealClock())
    except ValueError as error:
        parser.error(str(error))
    token, user_token = _read_token(args.token_file), ""
    if not token:
        parser.error(f"--token-file {args.token_file}: the file is empty")
    if args.user_token_file:
        user_token = new_token()
        write_token(args.user_token_file, user_token)
    try:
        server = BrokerServer(
            cluster,
            Auth(token, user_token),
            host=args.host,
            port=args.port,
            ssl_certfile=args.ssl_certfile,
            ssl_keyfile=args.ssl_keyfile,
            on_ready=lambda: _announce_ready(cluster, server, args.ready_file),
        )
    except (OSError, OverflowError) as error:
        parser.error(f"--port {args.port}: {error}")
    # Uvicorn stops on these signals and then raises them again, when nothing is left to do.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    try:
        server.run(server.sockets)
    finally:
        if args.ready_file:
            args.ready_file.unlink(missing_ok=True)
    return 0


def _announce_ready(cluster: Cluster, server: BrokerServer, ready_file: Path | None) -> None:
    ready = {
        "cluster": cluster.spec.name,
        "urls": server.urls,
        "brokers": [broker.broker_id for broker in cluster.membership.brokers],
        "pid": os.getpid(),
    }
    if ready_file:
        ready_file.parent.mkdir(parents=True, exist_ok=True)
        part = ready_file.with_name(f"{ready_file.name}.part")
        part.write_text(json.dumps(ready))
        part.replace(ready_file)
    print(json.dumps(ready), flush=True)


if __name__ == "__main__":
    sys.exit(main())
