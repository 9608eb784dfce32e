"""Scripts as they ship, run by Lua over the keys of a model server.

One runtime of Lua runs those of all models, each compiled once; `redis` is an argument
of a script, and has the keys of its model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

Reply = int | bytes | list[Any] | bool | None  # True: OK; False, as None: nil


UNKNOWN = b"-ERR unknown command\r\n"


class ReplyError(Exception):
    """An error reply to a command."""

    def __init__(self, reply: bytes) -> None:
        self.reply = reply

    def text(self) -> bytes:
        return self.reply[1:-2]


# A table comes back as `true` and its values; an error as nil and its text.
COMPILE = b"""\
local function flat(reply)
  if type(reply) ~= "table" then return reply end
  if reply.err then return nil, reply.err end
  return true, unpack(reply)
end
return function(source)
  local script = assert(loadstring("local redis, KEYS, ARGV = ...\\n" .. source))
  return function(redis, count, ...)
    local all = {...}
    return flat(script(redis, {unpack(all, 1, count)}, {unpack(all, count + 1)}))
  end
end"""


@cache
def runtime() -> tuple[Any, Callable[[bytes], Any]]:
    """Return the runtime, and its function that compiles a script."""
    try:
        from lupa.lua51 import LuaRuntime
    except ImportError as error:
        raise ImportError(
            "masters in memory run the Lua scripts by lupa: "
            "pip install 'fastredlock[testing]'"
        ) from error
    lua = LuaRuntime(encoding=None, register_eval=False, register_builtins=False)
    return lua, cache(lua.execute(COMPILE))


class Lua:
    """Run scripts of one server, which call its commands: these raise ReplyError.

    Lua holds the commands, which must not hold this: such a circle is never freed.
    """

    def __init__(self, commands: dict[bytes, Callable[..., Any]]) -> None:
        lua, self.compile = runtime()

        def call(name: bytes, *words: Any) -> Any:
            command = commands.get(name)
            if command is None:
                raise ReplyError(UNKNOWN)
            reply = command(*words)
            if type(reply) is list:
                return lua.table_from(reply)
            return False if reply is None else reply

        def pcall(*words: Any) -> Any:
            try:
                return call(*words)
            except ReplyError as error:
                return error_reply(error.text())

        def error_reply(text: bytes) -> Any:
            return lua.table_from({b"err": text})

        redis = {b"call": call, b"pcall": pcall, b"error_reply": error_reply}
        self._redis = lua.table_from(redis)

    def run(self, script: Any, count: int, words: list[bytes]) -> Reply:
        """Run a compiled script, `words` being its `count` keys and its arguments."""
        reply = script(self._redis, count, *words)
        if type(reply) is tuple:
            first, *values = reply
            if first is None:
                raise ReplyError(b"-%b\r\n" % values[0])
            return values
        return [] if reply is True else reply
