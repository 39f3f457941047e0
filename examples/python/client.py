"""A client of a simse server that is made from the server's OpenAPI document while it runs: every operation is a method.

Nothing but Python's own library is needed (3.9 or newer).

    npx simse serve --port 4100
    SIMSE_URL=http://127.0.0.1:4100 SIMSE_TOKEN=$(cat ~/.local/share/simse/token) python3 examples/python/client.py "Which files are here?"
"""

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
import uuid


class SimseError(Exception):
    """An answer that is an error: `status`, and the server's `code`, `message` and `details`."""

    def __init__(self, status, error):
        super().__init__(error.get("message", f"status {status}"))
        self.status, self.code, self.details = status, error.get("code"), error.get("details")


class Simse:
    """`client("sessions.prompt", sessionId=..., body={...}, wait=True)` is the operation of that name."""

    def __init__(self, url, token):
        self.url, self.headers = url.rstrip("/"), {"authorization": f"Bearer {token}"}
        document = self._json("GET", "/openapi.json")
        self.operations = {
            operation["operationId"]: (method.upper(), path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if "operationId" in operation
        }

    def _open(self, method, path, body=None, headers=None):
        data = None if body is None else json.dumps(body).encode()
        sent = {**self.headers, **(headers or {}), **({} if data is None else {"content-type": "application/json"})}
        request = urllib.request.Request(self.url + path, data, sent, method=method)
        try:
            return urllib.request.urlopen(request)
        except urllib.error.HTTPError as refusal:
            with refusal:
                raise SimseError(refusal.code, json.load(refusal).get("error", {})) from None

    def _json(self, *request):
        with self._open(*request) as response:
            text = response.read()
        return json.loads(text) if text else None

    def _place(self, name, arguments):
        if name not in self.operations:
            raise KeyError(f"no operation {name}; there are: {', '.join(sorted(self.operations))}")
        method, path, operation = self.operations[name]
        for parameter in [part[1:-1] for part in path.split("/") if part.startswith("{")]:
            path = path.replace("{" + parameter + "}", urllib.parse.quote(str(arguments.pop(parameter)), safe=""))
        known = {parameter.get("name") for parameter in operation.get("parameters", [])}
        if unknown := sorted(set(arguments) - known):
            raise TypeError(f"{name} has no parameter {', '.join(unknown)}")
        query = urllib.parse.urlencode({key: str(value).lower() if isinstance(value, bool) else value for key, value in arguments.items()})
        # A write with a key of its own is done once, however often it is sent.
        headers = {"idempotency-key": str(uuid.uuid4())} if "Idempotency-Key" in known else {}
        return method, f"{path}?{query}" if query else path, headers

    def __call__(self, name, body=None, **arguments):
        method, path, headers = self._place(name, arguments)
        return self._json(method, path, body, headers)

    def stream(self, name, body=None, **arguments):
        """The events of an operation, as they come."""
        method, path, headers = self._place(name, arguments)
        with self._open(method, path, body, {**headers, "accept": "text/event-stream"}) as response:
            data = []
            for line in response:
                line = line.decode().rstrip("\r\n")
                if line.startswith("data:"):
                    data.append(line[5:].removeprefix(" "))
                elif not line and data:
                    yield json.loads("\n".join(data))
                    data = []


def main():
    client = Simse(os.environ.get("SIMSE_URL", "http://127.0.0.1:3000"), os.environ.get("SIMSE_TOKEN", ""))
    session = client("sessions.create", {"title": "From Python"})["sessionId"]
    prompt = sys.argv[1] if len(sys.argv) > 1 else "Which files are here?"
    for event in client.stream("sessions.prompt", {"prompt": prompt}, sessionId=session):
        if event["type"] == "stream.delta":
            print(event["payload"]["text"], end="", flush=True)
    turn = client("sessions.turns", sessionId=session, limit=1)["items"][0]
    print(f"\n{turn['status']}, {turn['usage']['totalTokens']} tokens")
    try:
        client("sessions.get", sessionId="nobody")
    except SimseError as error:
        print(error.status, error.code)


if __name__ == "__main__":
    main()
