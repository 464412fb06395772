"""What pymemcache (text protocol) is told by the server on a port of this machine."""
import sys
import time

from pymemcache.client.base import Client
from pymemcache.client.hash import HashClient
from pymemcache import serde


def say(what, call):
    try:
        print(f"{what}: {call()!r:.200}")
    except Exception as error:
        print(f"{what}: {type(error).__name__} {error}")


address = ("127.0.0.1", int(sys.argv[1]))
c = Client(address, default_noreply=False, allow_unicode_keys=True)
say("flush_all", c.flush_all)
say("get of none", lambda: c.get("a"))
say("set", lambda: c.set("a", "one"))
say("get", lambda: c.get("a"))
say("set with flags", lambda: c.set("f", "x", flags=4294967295))
say("set_many", lambda: c.set_many({"b": "two", "c": "three"}))
say("get_many", lambda: sorted(c.get_many(["a", "b", "no", "c"]).items()))
say("add", lambda: [c.add("a", "x"), c.add("added", "x")])
say("replace", lambda: [c.replace("a", "uno"), c.replace("no", "x"), c.get("a")])
cas = c.gets("a")[1]
say("cas", lambda: [c.cas("a", "new", cas), c.cas("a", "newer", cas), c.cas("no", "x", cas), c.get("a")])
say("gets_many", lambda: [(key, value) for key, (value, _) in sorted(c.gets_many(["a", "no", "b"]).items())])
say("append", lambda: [c.append("a", "!"), c.prepend("a", "<"), c.append("no", "!"), c.get("a")])
say("number", lambda: [c.set("n", "10"), c.incr("n", 5), c.decr("n", 100), c.incr("no", 1), c.get("n")])
say("greatest number", lambda: [c.set("n", 2**64 - 1), c.incr("n", 2)])
say("no number", lambda: c.incr("a", 1))
say("touch", lambda: [c.touch("a", 100), c.touch("no", 100)])
say("delete", lambda: [c.delete("a"), c.delete("a"), c.get("a")])
say("delete_many", lambda: [c.delete_many(["b", "no"]), c.get("b")])
binary = bytes(range(256)) + b"\r\nEND\r\n" + bytes(range(256))
say("bytes", lambda: [c.set("bytes", binary), c.get("bytes") == binary])
say("empty", lambda: [c.set("empty", b""), c.get("empty")])
large = b"0123456789" * 100_000
say("large", lambda: [c.set("large", large), c.get("large") == large])
say("too large", lambda: c.set("larger", large * 3))
say("after that", lambda: [c.get("larger"), c.get("empty")])
say("unicode", lambda: [c.set("schlüssel\u2713", "wert"), c.get("schlüssel\u2713")])
say("longest key", lambda: [c.set("k" * 250, "x"), c.get("k" * 250)])
say("longer key", lambda: c.set("k" * 251, "x"))
say("noreply", lambda: [c.set("q", "x", noreply=True), c.get("q")])
say("delete with noreply", lambda: [c.delete("added", noreply=True), c.get("added")])
say("expired", lambda: [c.set("e", "x", expire=-1), c.get("e")])
say("expires", lambda: [c.set("e", "x", expire=2), c.get("e")])
say("expires at", lambda: [c.set("at", "x", expire=int(time.time()) + 1000), c.get("at")])
time.sleep(3.1)
say("has expired", lambda: c.get("e"))
say("raw command", lambda: [c.raw_command(b"mn"), c.raw_command(b"mg n v t s")])
say("statistics", lambda: isinstance(c.stats()[b"cmd_get"], int))
say("version", lambda: c.version().startswith(b"1.6.18"))
pickled = Client(address, serde=serde.pickle_serde)
say("objects", lambda: [pickled.set("o", {"a": [1, None]}), pickled.get("o")])
say("whole number", lambda: [pickled.set("i", 7), pickled.get("i")])
many = HashClient([address], use_pooling=True)
say("pool", lambda: [many.set("p", "x"), many.get("p"), sorted(many.get_many(["p", "no"]).items())])
keys = [f"m{n}" for n in range(700)]
say("many keys", lambda: [c.set_many(dict.fromkeys(keys[:500], "x")), len(c.get_many(keys))])
say("flush_all", lambda: [c.flush_all(), c.get("p")])
c.quit()
