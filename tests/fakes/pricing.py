"""Loopback servers that speak the wire forms of the price APIs: AWS JSON 1.1, the EC2 query API, Google's JSON lists.

They are strict where the clouds are: unknown operations, filters and parameters are refused, pages are short, and requests
without credentials are not answered. Faults are scripted per operation.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from xml.sax.saxutils import escape

GARBAGE = "garbage"
DROP = "drop"


@dataclass
class Fault:
    """What the next calls of an operation are answered with instead of the truth."""

    operation: str
    code: str
    """An error code, ``garbage`` or ``drop`` (the connection is reset)."""
    times: int = 1
    region: str | None = None
    status: int = 400


@dataclass
class Calls:
    """Every request, and the faults still to come. Shared by the threads of one server."""

    faults: list[Fault] = field(default_factory=list)
    log: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    """(operation, region, parameters)."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, operation: str, region: str, parameters: dict[str, Any]) -> Fault | None:
        with self.lock:
            self.log.append((operation, region, parameters))
            for fault in self.faults:
                if fault.operation == operation and fault.region in (None, region) and fault.times:
                    fault.times -= 1
                    return fault
        return None

    def of(self, operation: str, region: str | None = None) -> list[dict[str, Any]]:
        return [what for name, where, what in self.log if name == operation and region in (None, where)]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65536  # without it every answer waits 40 ms for an acknowledgement
    answer: Callable[[Handler, bytes], None]

    def log_message(self, *words: Any) -> None:
        pass

    def send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def _all(self) -> None:
        type(self).answer(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    do_GET = do_POST = _all  # noqa: N815


@contextmanager
def served(answer: Callable[[Handler, bytes], None]) -> Iterator[str]:
    """The address of a server that answers by ``answer``; it ends with the block."""
    kind = type("Bound", (Handler,), {"answer": staticmethod(answer)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# AWS


def reserved(
    years: int, option: str, hourly: str = "", upfront: str = "", offering: str = "standard"
) -> dict[str, Any]:
    """A reserved term of the Price List, as AWS writes them: hours in ``Hrs`` or ``hrs``, the fee ahead in ``Quantity``."""
    dimensions = {}
    if hourly:
        dimensions["hours"] = {"unit": "Hrs" if years == 1 else "hrs", "pricePerUnit": {"USD": hourly}}
    if upfront:
        dimensions["fee"] = {"unit": "Quantity", "pricePerUnit": {"USD": upfront}, "description": "Upfront Fee"}
    attributes = {"LeaseContractLength": f"{years}yr", "OfferingClass": offering, "PurchaseOption": option}
    return {"offerTermCode": f"{years}{option}{offering}", "priceDimensions": dimensions, "termAttributes": attributes}


def product(
    instance_type: str,
    region: str,
    usd: str,
    gpu: str = "1",
    *,
    terms: Sequence[dict[str, Any]] = (),
    **attributes: str,
) -> dict[str, Any]:
    """A Price List product with one on-demand term, and reserved ones."""
    sku = re.sub(r"\W", "", f"{instance_type}{region}{sorted(attributes.items())}").upper()
    return {
        "product": {
            "productFamily": attributes.pop("productFamily", "Compute Instance"),
            "sku": sku,
            "attributes": {
                "instanceType": instance_type,
                "regionCode": region,
                "operatingSystem": "Linux",
                "gpu": gpu,
                "preInstalledSw": "NA",
                "capacitystatus": "Used",
                "marketoption": "OnDemand",
                "tenancy": "Shared",
                **attributes,
            },
        },
        "serviceCode": "AmazonEC2",
        "terms": {
            "OnDemand": {
                f"{sku}.JRTCKXETXF": {
                    "sku": sku,
                    "offerTermCode": "JRTCKXETXF",
                    "priceDimensions": {
                        f"{sku}.JRTCKXETXF.6YS6EN2CT7": {
                            "unit": "Hrs",
                            "beginRange": "0",
                            "endRange": "Inf",
                            "appliesTo": [],
                            "pricePerUnit": {"USD": usd},
                        }
                    },
                }
            },
            **({"Reserved": {f"{sku}.{number}": term for number, term in enumerate(terms)}} if terms else {}),
        },
        "version": "20261130000000",
    }


def disk(usage: str, region: str, usd: str, *, family: str = "Storage", **attributes: str) -> dict[str, Any]:
    """A Price List product of EBS; ``usage`` has the region's short name before it everywhere but in us-east-1."""
    sku = re.sub(r"\W", "", f"{usage}{region}").upper()
    price = {"unit": "GB-Mo", "beginRange": "0", "endRange": "Inf", "pricePerUnit": {"USD": usd}}
    return {
        "product": {
            "productFamily": family,
            "sku": sku,
            "attributes": {"regionCode": region, "usagetype": usage, "servicecode": "AmazonEC2", **attributes},
        },
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {f"{sku}.JRTCKXETXF": {"sku": sku, "priceDimensions": {f"{sku}.1": price}}}},
        "version": "20261130000000",
    }


@dataclass
class AwsMarket:
    """What the AWS stub knows."""

    zones: dict[str, dict[str, str]] = field(default_factory=dict)
    """Region -> zone id -> the account's letter."""
    products: list[Any] = field(default_factory=list)
    """Entries of the Price List; a text is sent as it is."""
    offerings: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """Region -> (zone id, type)."""
    spot: dict[str, list[tuple[str, str, str, str]]] = field(default_factory=dict)
    """Region -> (type, zone id, price, time)."""
    quotas: dict[tuple[str, str], float] = field(default_factory=dict)
    blocks: dict[str, list[tuple[str, str, str, str, str]]] = field(default_factory=dict)
    """Region -> offers of capacity blocks: (type, zone id, fee of one machine, start, end)."""
    scores: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """(type, region, zone id) -> score."""
    calls: Calls = field(default_factory=Calls)
    names_only: bool = False
    """Answer spot prices with the account's letters alone, as the API did before it knew ids."""
    page: int = 2


_FIELDS = {
    *("regionCode", "operatingSystem", "preInstalledSw", "capacitystatus", "marketoption", "tenancy"),
    *("productFamily", "instanceType", "volumeApiName"),
}


@contextmanager
def aws_prices(
    market: AwsMarket, seen: Callable[[Mapping[str, str], bytes], None] = lambda _headers, _body: None
) -> Iterator[str]:
    """An endpoint for pricing, service-quotas and ec2 (``AWS_ENDPOINT_URL``); ``seen`` is told of each request."""

    def answer(handler: Handler, body: bytes) -> None:
        seen(dict(handler.headers), body)
        scope = re.search(r"Credential=[^/]+/\d+/([^/]+)/", handler.headers.get("Authorization", ""))
        region = scope[1] if scope else ""
        target = handler.headers.get("X-Amz-Target")
        if target:
            _json_call(market, handler, target.rpartition(".")[2], region, json.loads(body))
        else:
            form = dict(urllib.parse.parse_qsl(body.decode(), strict_parsing=True))
            _query_call(market, handler, region, form)

    with served(answer) as address:
        yield address


def _json_call(market: AwsMarket, handler: Handler, operation: str, region: str, body: dict[str, Any]) -> None:
    fault = market.calls.take(operation, region if operation != "GetProducts" else _region_asked(body), body)
    kind = "application/x-amz-json-1.1"
    if fault and fault.code == DROP:
        return handler.reset()
    if fault and fault.code == GARBAGE:
        return handler.send(200, b"<html>proxy error</html>", kind)
    if fault:
        error = {"__type": fault.code, "message": f"{fault.code} says the stub"}
        return handler.send(fault.status, json.dumps(error).encode(), kind)
    try:
        result = {"GetProducts": _products, "GetServiceQuota": _quota}[operation](market, region, body)
    except LookupError as error:
        refused = {"__type": error.args[0], "message": "refused by the stub"}
        return handler.send(400, json.dumps(refused).encode(), kind)
    return handler.send(200, json.dumps(result).encode(), kind)


def _region_asked(body: Mapping[str, Any]) -> str:
    return next((str(one["Value"]) for one in body.get("Filters", ()) if one["Field"] == "regionCode"), "")


def _products(market: AwsMarket, region: str, body: Mapping[str, Any]) -> dict[str, Any]:
    if body["ServiceCode"] != "AmazonEC2" or any(
        one["Type"] != "TERM_MATCH" or one["Field"] not in _FIELDS for one in body["Filters"]
    ):
        raise LookupError("InvalidParameterException")

    def matches(entry: Any) -> bool:
        if isinstance(entry, str):
            return True
        attributes = {**entry["product"]["attributes"], "productFamily": entry["product"]["productFamily"]}
        return all(attributes.get(one["Field"]) == one["Value"] for one in body["Filters"])

    found = [entry for entry in market.products if matches(entry)]
    some, token = _page(market, found, body.get("NextToken"))
    texts = [entry if isinstance(entry, str) else json.dumps(entry) for entry in some]
    return {"FormatVersion": "aws_v1", "PriceList": texts, **({"NextToken": token} if token else {})}


def _quota(market: AwsMarket, region: str, body: Mapping[str, Any]) -> dict[str, Any]:
    key = (region, str(body["QuotaCode"]))
    if key not in market.quotas:
        raise LookupError("NoSuchResourceException")
    return {"Quota": {"ServiceCode": body["ServiceCode"], "QuotaCode": key[1], "Value": market.quotas[key]}}


def _page(market: AwsMarket, items: list[Any], token: str | None) -> tuple[list[Any], str | None]:
    start = int(token.removeprefix("page-")) if token else 0
    end = start + market.page
    return items[start:end], f"page-{end}" if end < len(items) else None


def _query_call(market: AwsMarket, handler: Handler, region: str, form: dict[str, str]) -> None:
    operation = form["Action"]
    fault = market.calls.take(operation, region, form)
    kind = "text/xml;charset=UTF-8"
    if fault and fault.code == DROP:
        return handler.reset()
    if fault and fault.code == GARBAGE:
        return handler.send(200, b"<DescribeRegionsResponse><unfinished", kind)
    if fault:
        return handler.send(fault.status, _xml_error(fault.code), kind)
    try:
        parts = _EC2[operation](market, region, form)
    except KeyError:
        return handler.send(400, _xml_error("InvalidAction"), kind)
    name = f"{operation}Response"
    return handler.send(200, f"<{name}><requestId>r</requestId>{parts}</{name}>".encode(), kind)


def _xml_error(code: str) -> bytes:
    return (
        f"<?xml version='1.0' encoding='UTF-8'?><Response><Errors><Error><Code>{code}</Code>"
        f"<Message>{code} says the stub</Message></Error></Errors><RequestID>stub</RequestID></Response>"
    ).encode()


def _set(name: str, items: list[dict[str, str]], token: str | None = None) -> str:
    """An EC2 list: ``<name><item>...`` and its token."""
    inner = "".join(
        "<item>" + "".join(f"<{key}>{escape(value)}</{key}>" for key, value in item.items()) + "</item>"
        for item in items
    )
    return f"<{name}>{inner}</{name}>" + (f"<nextToken>{token}</nextToken>" if token else "")


def _filter(form: Mapping[str, str], name: str) -> set[str] | None:
    number = next((key.split(".")[1] for key, value in form.items() if key.endswith(".Name") and value == name), None)
    return {v for k, v in form.items() if k.startswith(f"Filter.{number}.Value.")} if number else None


def _regions(market: AwsMarket, region: str, form: Mapping[str, str]) -> str:
    return _set("regionInfo", [{"regionName": name, "optInStatus": "opt-in-not-required"} for name in market.zones])


def _zones(market: AwsMarket, region: str, form: Mapping[str, str]) -> str:
    zones = market.zones[region].items()
    return _set(
        "availabilityZoneInfo", [{"zoneId": key, "zoneName": name, "regionName": region} for key, name in zones]
    )


def _offerings(market: AwsMarket, region: str, form: Mapping[str, str]) -> str:
    assert form["LocationType"] == "availability-zone-id"
    wanted = _filter(form, "instance-type") or set()
    found = [pair for pair in market.offerings.get(region, ()) if pair[1] in wanted]
    some, token = _page(market, found, form.get("NextToken"))
    items = [{"instanceType": name, "locationType": "availability-zone-id", "location": zone} for zone, name in some]
    return _set("instanceTypeOfferingSet", items, token)


def _spot(market: AwsMarket, region: str, form: Mapping[str, str]) -> str:
    assert form["ProductDescription.1"] == "Linux/UNIX"
    assert form["StartTime"]
    wanted = _filter(form, "instance-type") or set()
    found = [row for row in market.spot.get(region, ()) if row[0] in wanted]
    some, token = _page(market, found, form.get("NextToken"))
    items = []
    for name, zone, price, time in some:
        where = {"availabilityZone": market.zones[region].get(zone, zone)}
        where |= {} if market.names_only else {"availabilityZoneId": zone}
        items.append(
            {"instanceType": name, "productDescription": "Linux/UNIX", "spotPrice": price, "timestamp": time, **where}
        )
    return _set("spotPriceHistorySet", items, token)


def _scores(market: AwsMarket, region: str, form: Mapping[str, str]) -> str:
    assert form["SingleAvailabilityZone"] == "true"
    name = form["InstanceType.1"]
    asked = {value for key, value in form.items() if key.startswith("RegionName.")}
    found = [(key, score) for key, score in market.scores.items() if key[0] == name and key[1] in asked]
    items = [{"region": key[1], "availabilityZoneId": key[2], "score": str(score)} for key, score in found]
    return _set("spotPlacementScoreSet", items)


def _blocks(market: AwsMarket, region: str, form: Mapping[str, str]) -> str:
    assert (form["InstanceCount"], form["CapacityDurationHours"]) == ("1", "24")
    found = [row for row in market.blocks.get(region, ()) if row[0] == form["InstanceType"]]
    some, token = _page(market, found, form.get("NextToken"))
    items = [
        {
            "capacityBlockOfferingId": f"cb-{number}",
            "instanceType": name,
            "availabilityZone": market.zones[region].get(zone, zone),
            "instanceCount": "1",
            "startDate": start,
            "endDate": end,
            "capacityBlockDurationHours": "24",
            "upfrontFee": fee,
            "currencyCode": "USD",
            "tenancy": "default",
        }
        for number, (name, zone, fee, start, end) in enumerate(some)
    ]
    return _set("capacityBlockOfferingSet", items, token)


_EC2 = {
    "DescribeCapacityBlockOfferings": _blocks,
    "DescribeRegions": _regions,
    "DescribeAvailabilityZones": _zones,
    "DescribeInstanceTypeOfferings": _offerings,
    "DescribeSpotPriceHistory": _spot,
    "GetSpotPlacementScores": _scores,
}


# Google


def sku(description: str, usd: str, *regions: str, usage: str = "OnDemand", unit: str = "h") -> dict[str, Any]:
    """A billing SKU; ``usd`` per unit."""
    whole, _, rest = usd.partition(".")
    group = "RAM" if " Ram " in description else "GPU" if "GPU" in description else "CPU"
    return {
        "name": f"services/6F81-5844-456A/skus/{abs(hash(description)):X}",
        "skuId": re.sub(r"\W", "", description).upper()[:14],
        "description": description,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": "Compute",
            "resourceGroup": group,
            "usageType": usage,
        },
        "serviceRegions": list(regions),
        "pricingInfo": [
            {
                "pricingExpression": {
                    "usageUnit": unit,
                    "tieredRates": [
                        {
                            "startUsageAmount": 0,
                            "unitPrice": {"currencyCode": "USD", "units": whole, "nanos": int(rest.ljust(9, "0")[:9])},
                        }
                    ],
                }
            }
        ],
    }


@dataclass
class GcpMarket:
    """What the Google stub knows."""

    skus: list[Any] = field(default_factory=list)
    machines: dict[str, list[str]] = field(default_factory=dict)
    """Zone -> machine types."""
    accelerators: dict[str, list[str]] = field(default_factory=dict)
    unreachable: list[str] = field(default_factory=list)
    key: str = "AIza-stub"
    calls: Calls = field(default_factory=Calls)
    page: int = 3


@contextmanager
def google_prices(market: GcpMarket) -> Iterator[str]:
    """An endpoint for Cloud Billing, Compute Engine and OAuth tokens."""

    def answer(handler: Handler, body: bytes) -> None:
        url = urllib.parse.urlsplit(handler.path)
        query = dict(urllib.parse.parse_qsl(url.query, strict_parsing=bool(url.query)))
        operation = url.path.rpartition("/")[2]
        fault = market.calls.take(operation, "", query)
        if fault and fault.code == DROP:
            return handler.reset()
        if fault and fault.code == GARBAGE:
            return handler.send(200, b"<html>proxy error</html>", "text/html")
        if fault:
            return _google_error(handler, fault.status, fault.code)
        if operation == "token":
            token = {"access_token": "ya29.stub", "expires_in": 3600, "token_type": "Bearer"}
            return handler.send(200, json.dumps(token).encode(), "application/json")
        has_token = handler.headers.get("Authorization") == "Bearer ya29.stub"
        has_key = handler.headers.get("X-Goog-Api-Key") == market.key
        if not has_token and not (has_key and operation == "skus"):
            return _google_error(handler, 401, "UNAUTHENTICATED")
        page = _google_page(market, url.path, query)
        if page is None:
            return _google_error(handler, 404, "notFound")
        return handler.send(200, json.dumps(page).encode(), "application/json; charset=UTF-8")

    with served(answer) as address:
        yield address


def _google_error(handler: Handler, status: int, reason: str) -> None:
    error = {
        "code": status,
        "message": f"{reason} says the stub",
        "errors": [{"message": "stub", "domain": "global", "reason": reason}],
    }
    handler.send(status, json.dumps({"error": error}).encode(), "application/json; charset=UTF-8")


def _google_page(market: GcpMarket, path: str, query: Mapping[str, str]) -> dict[str, Any] | None:
    start = int(query.get("pageToken", "0"))
    end = start + market.page
    if path == "/v1/services/6F81-5844-456A/skus":
        assert query["currencyCode"] == "USD"
        token = {"nextPageToken": str(end) if end < len(market.skus) else ""}  # the last page has an empty token
        return {"skus": market.skus[start:end], **token}
    kinds = {"machineTypes": market.machines, "acceleratorTypes": market.accelerators}
    prefix, _, kind = path.rpartition("/")
    if prefix != "/compute/v1/projects/stub-project/aggregated" or kind not in kinds:
        return None
    names = [(zone, name) for zone, found in kinds[kind].items() for name in found]
    if "filter" in query:
        pattern = re.fullmatch(r'name eq "(.*)"', query["filter"])
        assert pattern, query["filter"]
        names = [(zone, name) for zone, name in names if re.fullmatch(pattern[1], name)]
    items: dict[str, Any] = {
        f"zones/{zone}": {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "no results"}}
        for zone in market.machines
    }
    for zone, name in names[start:end]:
        scope = items.setdefault(f"zones/{zone}", {})
        scope.pop("warning", None)
        scope.setdefault(kind, []).append({"kind": f"compute#{kind[:-1]}", "name": name, "zone": zone})
    more = {"nextPageToken": str(end)} if end < len(names) else {}
    lost = {"unreachables": [f"projects/stub-project/zones/{zone}" for zone in market.unreachable]}
    return {"kind": f"compute#{kind}AggregatedList", "items": items, **more, **(lost if market.unreachable else {})}
