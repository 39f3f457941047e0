"""A client of the server in Python, over the `websockets` package: commands and events on `/ws`.

`python client.py URL HEADER-VALUE`: says what it saw as one JSON object a line on stdout. What it finds wrong ends it with an
error. It stops at two places and goes on when a line comes in: the server may be killed and started meanwhile.
"""

import asyncio
import json
import sys

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed


def tell(**said):
    print(json.dumps(said), flush=True)


async def pause(where):
    tell(at=where)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


class Line:
    """One connection: commands by their ids, and events as they come."""

    def __init__(self, socket):
        self.socket = socket
        self.events = []

    async def next(self):
        message = json.loads(await self.socket.recv())
        if message["type"] == "event":
            self.events.append(message["event"])
        return message

    async def command(self, **command):
        await self.socket.send(json.dumps(command))
        while True:
            message = await self.next()
            if message["type"] == "response" and message["id"] == command["id"]:
                return message

    async def until(self, kind):
        while not any(event["type"] == kind for event in self.events):
            await self.next()


async def main(url, authorization):
    headers = {"Authorization": authorization}
    async with connect(url, additional_headers=headers) as socket:
        line = Line(socket)
        ready = await line.next()
        created = await line.command(id="p1", type="create_session", sessionId="python")
        await line.command(id="p2", type="subscribe", sessionId="python", after=0)
        prompt = {"id": "p3", "type": "prompt", "sessionId": "python", "prompt": "hello"}
        first = await line.command(**prompt)
        await line.until("session.completed")
        again = await line.command(**prompt)
        other = await line.command(**{**prompt, "prompt": "something else"})
        stale = await line.command(id="p4", type="prompt", sessionId="python", prompt="late", ifSessionVersion=0)
        tell(ready=ready, created=created, first=first, again=again, other=other, stale=stale)
        seen = list(line.events)
        await pause("kill")
        try:
            while True:
                await line.next()
        except ConnectionClosed:
            pass
        seen = line.events
    await pause("start")
    # The package's own way to come back: it tries until there is somebody.
    async for socket in connect(url, additional_headers=headers):
        line = Line(socket)
        await line.next()
        durable = await line.command(**prompt)
        await line.command(id="p5", type="subscribe", sessionId="python", after=seen[-1]["seq"])
        await line.command(id="p6", type="prompt", sessionId="python", prompt="again")
        await line.until("session.completed")
        tell(durable=durable, events=seen + line.events)
        break


asyncio.run(main(*sys.argv[1:]))
