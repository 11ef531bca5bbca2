"""The admin and lookup REST API of the brokers: routes and handlers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from pulsar_simulator.brokers import Broker
from pulsar_simulator.cluster import Cluster
from pulsar_simulator.faults import FaultKind, Refusal, read_json
from pulsar_simulator.ownership import Redirect
from pulsar_simulator.topology import scalable_layout, scalable_topics, topic_hash

if TYPE_CHECKING:
    from starlette.requests import Request


def redirect(cluster: Cluster, broker: int, path: str, query: dict[str, str] | None = None) -> Response:
    """Return a redirect (307) to the same path on another broker. As on real brokers, the redirect has no body."""
    target = f"{cluster.reporter.scheme}://{cluster.membership.brokers[broker].broker_id}{path}"
    location = f"{target}?{urlencode(query, safe=':/')}" if query else target
    return Response(status_code=307, headers={"Location": location})


def _route(path: str, method: str, handler: Callable[[Request], Response]) -> Route:
    """Return a route whose handler runs in the event loop, because it never blocks."""

    async def endpoint(request: Request) -> Response:
        request.state.body = await request.body()
        return handler(request)

    return Route(path, endpoint, methods=[method])


def _path(request: Request) -> str:
    """Return the path as it was sent, percent-encoded."""
    raw: bytes = request.scope["raw_path"]
    return raw.decode("ascii")


class AdminApi:
    """Request handlers. Each answers as the broker that received the request (`request.state.broker`)."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def routes(self) -> list[Route]:
        """Return all routes. Routes with fixed paths come before routes with placeholders."""
        brokers, stats = "/admin/v2/brokers", "/admin/v2/broker-stats"
        namespaces, namespace = "/admin/v2/namespaces", "/admin/v2/namespaces/{tenant}/{namespace}"
        topic = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic:path}"
        get = [
            (brokers, self._brokers),
            (f"{brokers}/leaderBroker", self._leader),
            (f"{brokers}/ready", self._health_check),
            (f"{brokers}/health", self._health_check),
            (f"{brokers}/version", self._version_answer),
            (f"{brokers}/configuration", self._dynamic_names),
            (f"{brokers}/configuration/values", self._dynamic_values),
            (f"{brokers}/configuration/runtime", self._runtime_configuration),
            (f"{brokers}/{{cluster}}", self._brokers),
            (f"{brokers}/{{cluster}}/{{broker}}/ownedNamespaces", self._owned_namespaces),
            (f"{stats}/load-report", self._load_report),
            (f"{stats}/topics", self._topic_stats),
            ("/admin/v2/clusters/{cluster}/namespaceIsolationPolicies", self._isolation_policies),
            ("/admin/v2/clusters/{cluster}/failureDomains", self._failure_domains),
            ("/admin/v2/tenants", self._tenants),
            (f"{namespaces}/{{tenant}}", self._namespaces),
            (f"{namespace}/bundles", self._bundles),
            (f"{namespace}/topics", self._topics),
            (f"{namespace}/antiAffinity", self._anti_affinity_group),
            (f"{namespace}/{{bundle}}/topicHashPositions", self._hash_positions),
            ("/admin/v2/scalable/{tenant}/{namespace}", self._scalable_topics),
            ("/admin/v2/scalable/{tenant}/{namespace}/{topic}", self._scalable_topic),
            ("/admin/v2/scalable/{tenant}/{namespace}/{topic}/segments/{segment}/stats", self._stats_of_segment),
            ("/admin/v2/{domain:str}/{tenant}/{namespace}", self._topics_of_domain),
            ("/admin/v2/{domain:str}/{tenant}/{namespace}/{topic:path}/stats", self._stats_of_topic),
            ("/admin/v2/non-persistent/{tenant}/{namespace}/{bundle}", self._loaded_non_persistent_topics),
            (f"{topic}/bundle", self._bundle_of_topic),
            (topic, self._lookup),
        ]
        return [
            *(_route(path, "GET", handler) for path, handler in get),
            _route(f"{brokers}/configuration/{{name}}/{{value:path}}", "POST", self._set_value),
            _route(f"{brokers}/configuration/{{name}}", "DELETE", self._reset_value),
            _route(f"{namespace}/{{bundle}}/unload", "PUT", self._unload),
            _route(f"{namespace}/{{bundle}}/split", "PUT", self._split),
        ]

    # brokers

    def _brokers(self, request: Request) -> Response:
        return JSONResponse(self._cluster.active_brokers())

    def _leader(self, request: Request) -> Response:
        leader = self._cluster.membership.leader
        if leader is None:
            raise Refusal(404, "Couldn't find leader broker")
        broker = self._cluster.membership.brokers[leader]
        url = f"{self._cluster.reporter.scheme}://{broker.broker_id}"
        return JSONResponse({"serviceUrl": url, "brokerId": broker.broker_id})

    def _health_check(self, request: Request) -> Response:
        return PlainTextResponse("ok")

    def _version_answer(self, request: Request) -> Response:
        return PlainTextResponse(self._cluster.spec.version)

    def _owned_namespaces(self, request: Request) -> Response:
        wanted = request.path_params["broker"]
        index = self._cluster.membership.registered_index(wanted)
        if index is None:
            raise Refusal(404, f"Broker {wanted} not found", wanted)
        if index != self._responding_broker(request).index:
            return redirect(self._cluster, index, _path(request))
        entry = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
        return JSONResponse(dict.fromkeys(self._cluster.owned_bundles(wanted), entry))

    def _load_report(self, request: Request) -> Response:
        report = self._cluster.load_report_json(self._responding_broker(request).index)
        return Response(report, media_type="application/json")

    def _topic_stats(self, request: Request) -> Response:
        named = self._cluster.configuration.effective_value("exposePublisherStats") == "true"
        return JSONResponse(self._cluster.reporter.topic_stats(self._responding_broker(request), with_publishers=named))

    # configuration

    def _dynamic_names(self, request: Request) -> Response:
        return JSONResponse(self._cluster.configuration.dynamic_names())

    def _dynamic_values(self, request: Request) -> Response:
        return JSONResponse(self._cluster.configuration.overrides())

    def _runtime_configuration(self, request: Request) -> Response:
        me = self._responding_broker(request)
        values = self._cluster.configuration.runtime_values(me, tls=self._cluster.spec.uses_tls)
        other = self._cluster.faults.take_fault(FaultKind.OTHER_CONFIGURATION, broker=me.broker_id)
        return JSONResponse({**values, **(other.values if other else {})})

    def _set_value(self, request: Request) -> Response:
        self._cluster.configuration.set(request.path_params["name"], request.path_params["value"])
        return Response(status_code=200)

    def _reset_value(self, request: Request) -> Response:
        self._cluster.configuration.reset(request.path_params["name"])
        return Response(status_code=200)

    # clusters and policies

    def _isolation_policies(self, request: Request) -> Response:
        self._check_cluster(request)
        policies = self._cluster.spec.isolation_policies
        if not policies:
            raise Refusal(404, f"NamespaceIsolationPolicies for cluster {self._cluster.spec.name} does not exist")
        return JSONResponse(policies)

    def _failure_domains(self, request: Request) -> Response:
        self._check_cluster(request)
        return JSONResponse(self._cluster.spec.failure_domains)

    def _anti_affinity_group(self, request: Request) -> Response:
        group = self._cluster.topology.find_namespace(self._namespace(request)).anti_affinity_group
        return PlainTextResponse(group) if group else Response(status_code=204)

    # namespaces, bundles, topics

    def _tenants(self, request: Request) -> Response:
        return JSONResponse(sorted({name.partition("/")[0] for name in self._cluster.topology.namespaces}))

    def _namespaces(self, request: Request) -> Response:
        tenant = request.path_params["tenant"]
        names = [name for name in self._cluster.topology.namespaces if name.partition("/")[0] == tenant]
        if not names:
            raise Refusal(404, "Tenant not found")
        return JSONResponse(names)

    def _bundles(self, request: Request) -> Response:
        bounds = self._cluster.topology.boundaries(self._namespace(request))
        texts = [f"0x{bound:08x}" for bound in bounds]
        return JSONResponse({"boundaries": texts, "numBundles": len(bounds) - 1})

    def _topics(self, request: Request) -> Response:
        return JSONResponse(self._topic_names(self._namespace(request)))

    def _topics_of_domain(self, request: Request) -> Response:
        domain = self._topic_domain(request)
        names = self._topic_names(self._namespace(request))
        return JSONResponse([name for name in names if name.startswith(f"{domain}:")])

    def _loaded_non_persistent_topics(self, request: Request) -> Response:
        bundle, elsewhere = self._owned_bundle_or_redirect(request)
        if elsewhere is not None:
            return elsewhere
        return JSONResponse([name for name in self._listed_topics(bundle) if name.startswith("non-persistent:")])

    def _scalable_topics(self, request: Request) -> Response:
        return JSONResponse(sorted(scalable_topics(self._existing_topics(self._namespace(request)))))

    def _scalable_topic(self, request: Request) -> Response:
        name = f"topic://{self._namespace(request)}/{request.path_params['topic']}"
        segments = scalable_topics(self._existing_topics(self._namespace(request))).get(name)
        if segments is None:
            raise Refusal(404, f"Scalable topic not found: {name}")
        return JSONResponse(scalable_layout(segments))

    def _hash_positions(self, request: Request) -> Response:
        bundle, elsewhere = self._owned_bundle_or_redirect(request)
        if elsewhere is not None:
            return elsewhere
        wanted = {topic for given in request.query_params.getlist("topics") for topic in given.split(",")}
        positions = {t: topic_hash(t) for t in self._listed_topics(bundle) if not wanted or t in wanted}
        answer = {"namespace": self._namespace(request), "bundle": request.path_params["bundle"]}
        return JSONResponse({**answer, "topicHashPositions": positions})

    def _unload(self, request: Request) -> Response:
        hop = self._cluster.unload_via(
            self._responding_broker(request).index,
            self._namespace(request),
            request.path_params["bundle"],
            request.query_params.get("destinationBroker"),
        )
        if hop is None:
            return Response(status_code=204)
        return redirect(self._cluster, hop.broker, _path(request), hop.query)

    def _split(self, request: Request) -> Response:
        query, positions = request.query_params, read_json(request.state.body or b"[]")
        if not isinstance(positions, list) or not all(isinstance(position, int) for position in positions):
            raise Refusal(400, "The body must be a JSON list of positions")
        hop = self._cluster.split_via(
            self._responding_broker(request).index,
            self._namespace(request),
            request.path_params["bundle"],
            query.get("splitAlgorithmName", ""),
            positions,
            unload=query.get("unload") == "true",
        )
        if hop is None:
            return Response(status_code=204)
        return redirect(self._cluster, hop.broker, _path(request), {**query, "authoritative": "true"})

    def _stats_of_topic(self, request: Request) -> Response:
        self._topic_domain(request)
        return self._stats_answer(self._topic(request), request)

    def _stats_of_segment(self, request: Request) -> Response:
        namespace, params = self._namespace(request), request.path_params
        name = re.compile(re.escape(f"segment://{namespace}/{params['topic']}/") + f".+-{re.escape(params['segment'])}")
        found = next(filter(name.fullmatch, self._existing_topics(namespace)), None)
        if found is None:
            raise Refusal(404, f"Segment not found: {params['segment']}")
        return self._stats_answer(found, request, publishers="producers")

    def _stats_answer(self, topic: str, request: Request, publishers: str = "publishers") -> Response:
        answer = self._cluster.topic_stats_via(self._responding_broker(request).index, topic)
        if isinstance(answer, Redirect):
            return redirect(self._cluster, answer.broker, _path(request), answer.query)
        return JSONResponse({publishers if name == "publishers" else name: value for name, value in answer.items()})

    # lookup

    def _lookup(self, request: Request) -> Response:
        topic = self._topic(request)
        scalable = topic.startswith(("segment:", "topic:"))
        if scalable and topic not in self._loaded_topics(self._cluster.topology.bundle_of_topic(topic)):
            raise Refusal(404, f"Topic not found: {topic}")  # brokers never create segments by themselves
        answer = self._cluster.lookup_via(
            self._responding_broker(request).index,
            topic,
            authoritative=request.query_params.get("authoritative") == "true",
        )
        if isinstance(answer, Redirect):
            return redirect(self._cluster, answer.broker, _path(request), answer.query)
        owner = self._cluster.membership.brokers[answer.broker]
        service, scheme = self._cluster.reporter.service_url(owner), self._cluster.reporter.scheme
        web = {"httpUrlTls" if self._cluster.spec.uses_tls else "httpUrl": f"{scheme}://{owner.broker_id}"}
        return JSONResponse({"brokerUrl": service, **web, "nativeUrl": service, "brokerUrlSsl": ""})

    def _bundle_of_topic(self, request: Request) -> Response:
        bundle = self._cluster.topology.bundle_of_topic(self._topic(request))
        return PlainTextResponse(self._cluster.topology.range_of(bundle))

    # helpers

    def _responding_broker(self, request: Request) -> Broker:
        broker: Broker = request.state.broker
        return broker

    def _topic_domain(self, request: Request) -> str:
        domain: str = request.path_params["domain"]
        if domain not in ("persistent", "non-persistent"):
            raise Refusal(404, "HTTP 404 Not Found")
        return domain

    def _namespace(self, request: Request) -> str:
        return f"{request.path_params['tenant']}/{request.path_params['namespace']}"

    def _topic(self, request: Request) -> str:
        params: dict[str, Any] = request.path_params
        return f"{params['domain']}://{self._namespace(request)}/{params['topic']}"

    def _check_cluster(self, request: Request) -> None:
        name = request.path_params["cluster"]
        if name != self._cluster.spec.name:
            raise Refusal(412, f"Cluster {name} does not exist.")

    def _topic_names(self, namespace: str) -> list[str]:
        members = self._cluster.topology.bundles_of(namespace)
        return [topic for bundle in members for topic in self._listed_topics(bundle)]

    def _listed_topics(self, bundle: int) -> list[str]:
        """Return the topics that lists name: segments of scalable topics are in none."""
        return [topic for topic in self._loaded_topics(bundle) if not topic.startswith("segment:")]

    def _existing_topics(self, namespace: str) -> list[str]:
        """Return a namespace's existing topics: the topics of its bundles with traffic. Others were never created."""
        members = self._cluster.topology.bundles_of(namespace)
        return [topic for bundle in members for topic in self._loaded_topics(bundle)]

    def _loaded_topics(self, bundle: int) -> list[str]:
        return self._cluster.topology.topics(bundle) if self._cluster.traffic.is_active[bundle] else []

    def _owned_bundle_or_redirect(self, request: Request) -> tuple[int, Response | None]:
        """Return the request's bundle, and a redirect if another broker owns it; refuse with 412 if it has no owner."""
        bundle = self._cluster.topology.index_of_range(self._namespace(request), request.path_params["bundle"])
        name = self._cluster.topology.bundles[bundle]
        owner = self._cluster.owner(name)
        if owner is None:
            raise Refusal(412, f"Failed to find ownership for ServiceUnit:{name}")
        if owner == self._responding_broker(request).broker_id:
            return bundle, None
        index = self._cluster.membership.find(owner).index
        return bundle, redirect(self._cluster, index, _path(request), dict(request.query_params))
