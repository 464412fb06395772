// What gomemcache (text protocol) is told by the server on a port of this machine.
package main

import (
	"bytes"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

func say(what string, told ...interface{}) {
	words := make([]string, len(told))
	for n, one := range told {
		words[n] = fmt.Sprint(one)
	}
	fmt.Printf("%s: %s\n", what, strings.Join(words, ", "))
}

func main() {
	c := memcache.New("127.0.0.1:" + os.Args[1])
	c.Timeout = 30 * time.Second
	set := func(key, value string) error { return c.Set(&memcache.Item{Key: key, Value: []byte(value)}) }
	get := func(key string) string {
		item, err := c.Get(key)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%.100s %d", item.Value, item.Flags)
	}
	say("DeleteAll", c.DeleteAll())
	say("Get of none", get("a"))
	say("Set", set("a", "one"), get("a"))
	say("flags", c.Set(&memcache.Item{Key: "f", Value: []byte("x"), Flags: 4294967295}), get("f"))
	many, err := c.GetMulti([]string{"a", "no", "f"})
	keys := []string{}
	for key := range many {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	say("GetMulti", keys, err)
	add := func(key string) error { return c.Add(&memcache.Item{Key: key, Value: []byte("x")}) }
	say("Add", add("a"), add("b"))
	item, err := c.Get("a")
	say("Get", err)
	item.Value = []byte("new")
	say("CompareAndSwap", c.CompareAndSwap(item), c.CompareAndSwap(item), get("a"))
	say("Delete", c.Delete("a"), c.Delete("a"), c.CompareAndSwap(item))
	say("number", set("n", "10"))
	for _, key := range []string{"n", "no", "f"} {
		more, err := c.Increment(key, 5)
		say("Increment "+key, more, err)
		less, err := c.Decrement(key, 100)
		say("Decrement "+key, less, err)
	}
	say("Touch", c.Touch("f", 100), c.Touch("no", 100))
	binary := make([]byte, 256)
	for n := range binary {
		binary[n] = byte(n)
	}
	say("bytes", c.Set(&memcache.Item{Key: "bytes", Value: binary}))
	item, err = c.Get("bytes")
	say("bytes", err, bytes.Equal(item.Value, binary))
	large := strings.Repeat("0123456789", 100000)
	say("large", set("large", large))
	item, err = c.Get("large")
	say("large", err, string(item.Value) == large)
	say("too large", set("larger", large+large+large))
	say("after that", get("larger"), get("f"))
	say("longer key", set(strings.Repeat("k", 251), "x"))
	say("expires", c.Set(&memcache.Item{Key: "e", Value: []byte("x"), Expiration: 2}), get("e"))
	time.Sleep(3100 * time.Millisecond)
	say("has expired", get("e"))
}
