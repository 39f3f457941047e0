"""What schemathesis is told beside the document: the names that this server knows, which no schema can say."""

import os

import requests
import schemathesis

BASE = os.environ["SIMSE_URL"]
HEADERS = {"Authorization": os.environ["SIMSE_AUTHORIZATION"]}


def ask(path):
    answer = requests.get(BASE + path, headers=HEADERS, timeout=30)
    answer.raise_for_status()
    return answer.json()


def frame(event):
    """A frame of an event stream, whose data is an event or the first `ready`."""
    ready = {"$ref": "#/components/schemas/StreamReady"}
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": {"anyOf": [ready, event]}}
    number = {"type": "string", "pattern": "^[0-9]+$"}
    return {"type": "object", "required": ["data"], "properties": {"data": data, "id": number}}


def fallbacks(models):
    """Models in some order, each once; or those of the server."""
    listed = {"type": "array", "uniqueItems": True, "maxItems": len(models), "items": {"enum": models}}
    return {"anyOf": [listed, {"enum": [["*"], None]}]}


@schemathesis.hook
def before_load_schema(context, raw_schema):
    schemas = raw_schema["components"]["schemas"]
    models = [model["id"] for model in ask("/models")["models"] if model["available"]]
    tools = [tool["name"] for tool in ask("/tools")["tools"]]
    for name in ("CreateSession", "ConfigureInput"):
        fields = schemas[name]["properties"]
        fields["model"] = {"enum": [*models, None]}
        fields["workingDirectory"] = {"enum": [os.environ["SIMSE_WORK"], None]}
        fields["additionalDirectories"] = {"enum": [[os.environ["SIMSE_WORK"]], [], None]}
        fields["tools"]["items"] = {"enum": ["*", tools[0], "-" + tools[0], "+" + tools[1]]}
        if "agent" in fields:
            fields["agent"] = {"enum": ["simse", None]}
        fields["modelFallbacks"] = fallbacks(models)
    schemas["CountTokens"]["properties"]["model"] = {"enum": [*models, None]}
    turn = schemas["TurnSettingsInput"]["properties"]
    turn["model"] = {"enum": [*models, None]}
    turn["modelFallbacks"] = fallbacks(models)
    turn["agent"] = {"enum": ["simse", None]}
    # What is a schema of an answer, the document cannot say: that it is one.
    turn["outputSchema"] = {"enum": [{"type": "object"}, None]}
    # Every session has an event 1, and no other for certain.
    schemas["Fork"]["properties"]["at"] = {"enum": [1, None]}
    for path in raw_schema["paths"].values():
        for operation in path.values():
            if not isinstance(operation, dict):
                continue
            for response in operation["responses"].values():
                stream = response.get("content", {}).get("text/event-stream")
                if stream:
                    stream["schema"] = frame(stream["schema"])


@schemathesis.hook
def before_call(context, case, kwargs):
    """A request that is to be accepted names nothing that is not there, and nothing that does not go together."""
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    query, headers = case.query or {}, case.headers or {}
    if case.path != "/sessions/{sessionId}/history":
        query.pop("cursor", None)
    elif "types" in query:
        query["events"] = "true"
    if query.get("events") == "true":
        query.pop("back", None)
    # A directory that there is, where no session says it.
    if "workingDirectory" in query:
        query["workingDirectory"] = os.environ["SIMSE_WORK"]
    if "sessionId" in query:
        query.pop("workingDirectory", None)
    if case.path.endswith("/files"):
        query["path"] = "."
    if case.path == "/sessions/{sessionId}" and "limit" in query:
        query["snapshot"] = "true"
    # A place in a log of which only the first event is certain.
    if case.path.endswith("/events"):
        headers.pop("Last-Event-ID", None)
        query["after"] = "0"
    # The version stands in one place, and there is none where no session is named.
    named = isinstance(case.body, dict) and case.body.get("ifVersion") is not None
    if named or (case.path.startswith("/permissions") and "sessionId" not in query):
        headers.pop("If-Match", None)
