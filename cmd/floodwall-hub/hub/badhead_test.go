// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/floodwall/floodwall/internal/fleet/policies"
	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestBadHead publishes bad orders in place of the current one, as a user with admin.nk could: an empty order, text, and orders with a flipped bit.
// After each bad order, and also after a restart of the hub, the key's holder pushes, rolls back, and pushes with a new key. Each command must report
// the skipped order. The hub must report orders with an invalid format, and distribute the previous order.
func TestBadHead(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	var log lines
	h.log = log.add
	files := t.TempDir()
	said := ""
	plan := func() policies.Plan {
		key, err := nkeys.CreateAccount()
		if err != nil {
			t.Fatal(err)
		}
		return policies.Plan{Key: key, Trial: 10 * time.Second, Tell: func(text string) { said += text + "\n" }, Took: func(uint64) error { return nil }}
	}
	client, err := Dial(h.config, nats.InProcessServer(h.server))
	if err != nil {
		t.Fatal(err)
	}
	version := 0
	push := func(p *policies.Plan) {
		t.Helper()
		version++
		text := "devices: [eth0]\ndefault: pass\nrules:\n  - {name: r" + strconv.Itoa(version) + ", port: udp/1, then: drop}\n"
		if err := os.WriteFile(filepath.Join(files, policies.Policy), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		said = ""
		if p.Least, err = policies.Push(t.Context(), client, files, *p); err != nil {
			t.Fatalf("push of version %d: %v", version, err)
		}
	}
	publish := func(order []byte) {
		t.Helper()
		js, err := jetstream.New(client.conn)
		if err == nil {
			_, err = js.Publish(t.Context(), wire.PolicyHead, order)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	p := plan()
	push(&p)
	for _, bad := range []struct {
		name  string
		spoil func(order []byte) []byte
		whole bool // the hub, which verifies no signature, accepts this as an order
	}{
		{"no bytes", func([]byte) []byte { return nil }, false},
		{"text", func([]byte) []byte { return []byte(strings.Repeat("policy ", 20)) }, false},
		{"a bit of the manifest", func(order []byte) []byte { order[64] ^= 1; return order }, false},
		{"a bit of the signature", func(order []byte) []byte { order[3] ^= 1; return order }, true},
	} {
		for _, again := range []bool{false, true} {
			push(&p)
			good, err := client.Order(t.Context(), p.Least)
			if err != nil {
				t.Fatal(err)
			}
			publish(bad.spoil(append([]byte{}, good...)))
			if again {
				client.Close()
				h.Close()
				if h, err = Start(context.Background(), h.config, log.add); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(h.Close)
				if client, err = Dial(h.config, nats.InProcessServer(h.server)); err != nil {
					t.Fatal(err)
				}
			}
			if !bad.whole && !testutil.Eventually(time.Minute, func() bool { return string(h.counts()) == string(good) && log.has("passed by") }) {
				t.Errorf("%s, started again %t: the hub hands out %.30q", bad.name, again, h.counts())
			}
			said = ""
			if p.Least, err = policies.Rollback(t.Context(), client, 0, p); err != nil || !strings.Contains(said, "is passed by, as this key has not signed it") {
				t.Fatalf("%s, started again %t: rollback: %v, told:\n%s", bad.name, again, err, said)
			}
			publish(bad.spoil(append([]byte{}, good...)))
			if push(&p); !strings.Contains(said, "is passed by, as this key has not signed it") {
				t.Errorf("%s: push tells\n%s", bad.name, said)
			}
			publish(bad.spoil(append([]byte{}, good...)))
			other := plan()
			if _, err := policies.Push(t.Context(), client, files, other); err == nil {
				t.Errorf("%s: a push with a key that has signed nothing here goes on", bad.name)
			}
			other.NewKey = true
			other.Least = p.Least
			push(&other)
			p = other
		}
	}
}

// counts returns the current order, as the hub distributes it.
func (h *Hub) counts() []byte {
	h.policies.mu.Lock()
	defer h.policies.mu.Unlock()
	return h.policies.head
}
