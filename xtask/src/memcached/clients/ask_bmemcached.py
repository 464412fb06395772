"""What python-binary-memcached is told by the server on a port of this machine."""
import sys
import time

import bmemcached


def say(what, call):
    try:
        print(f"{what}: {call()!r:.200}")
    except Exception as error:
        print(f"{what}: {type(error).__name__} {error}")


c = bmemcached.Client([f"127.0.0.1:{sys.argv[1]}"])
say("flush_all", c.flush_all)
say("get of none", lambda: c.get("a"))
say("set", lambda: [c.set("a", "one"), c.get("a")])
say("types", lambda: [c.set("i", 7), c.get("i"), c.set("l", [1, "x"]), c.get("l")])
say("bytes", lambda: [c.set("b", b"\0\r\n\xff"), c.get("b")])
say("set_multi", lambda: c.set_multi({"b": "two", "c": "three"}))
say("get_multi", lambda: sorted(c.get_multi(["a", "b", "no", "c"]).items()))
say("add", lambda: [c.add("a", "x"), c.add("added", "x")])
say("replace", lambda: [c.replace("a", "uno"), c.replace("no", "x"), c.get("a")])
cas = c.gets("a")[1]
say("cas", lambda: [c.cas("a", "new", cas), c.cas("a", "newer", cas), c.cas("no", "x", cas), c.get("a")])
say("number", lambda: [c.incr("n", 5), c.incr("n", 3), c.decr("n", 100), c.get("n")])
say("number is made", lambda: [c.incr("made", 5, default=9), c.incr("made", 5, default=9)])
say("no number", lambda: c.incr("a", 1))
say("delete", lambda: [c.delete("a"), c.delete("a"), c.get("a")])
say("delete_multi", lambda: [c.delete_multi(["b", "no"]), c.get("b")])
large = bytes(range(256)) * 4000
say("large", lambda: [c.set("large", large, compress_level=0), c.get("large") == large])
say("compressed", lambda: [c.set("z", large * 4), c.get("z") == large * 4])
say("unicode", lambda: [c.set("schlüssel\u2713", "wert\u2713"), c.get("schlüssel\u2713")])
say("expires", lambda: [c.set("e", "x", time=2), c.get("e")])
time.sleep(3.1)
say("has expired", lambda: c.get("e"))
say("statistics", lambda: all("cmd_get" in numbers for numbers in c.stats().values()))
c.disconnect_all()
