// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/test/testutil"
)

// TestFetchThatThePolicyDrops fetches lists from a server whose answers the running policy drops. The error must name the rule or check that drops
// the answers, and a packet that a rule must pass. With `replies`, or with a rule that passes the answers, the fetch must succeed. The policy may
// pass the answers, but the server sends an error or no answer. Then the error must not blame the policy.
func TestFetchThatThePolicyDrops(t *testing.T) {
	for _, target := range []string{"xdp", "nftables"} {
		t.Run(target, func(t *testing.T) {
			if !inside(t) {
				return
			}
			server := newListServer(t)
			file := filepath.Join(t.TempDir(), "policy.yaml")
			policy := func(replies, rest string) {
				writeFile(t, file, fmt.Sprintf("devices: [fw0]\ndefault: drop\nchecks: off\nreplies: %s\nsets:\n  listed: {url: \"http://%s/list\", every: 1h}\nservices:\n  - {name: ssh, port: tcp/22}\n%s", replies, server, rest))
			}
			policy("drop", "")
			mustFloodwall(t, "apply", file, "--target", target)
			sh(t, "sysctl -qw net.ipv4.tcp_syn_retries=1 net.ipv4.tcp_syn_linear_timeouts=0") // else it takes 20 s to give up
			says := func(parts ...string) {
				t.Helper()
				out, err := floodwall("feeds", "refresh")
				for _, want := range parts {
					if err == nil || !strings.Contains(out, want) {
						t.Errorf("want %q, got %v\n%s", want, err, out)
					}
				}
			}
			says("the policy that runs drops its answers by its default: a rule must pass packets such as", fmt.Sprintf("tcp %s > 192.0.2.1:", server))
			policy("pass", fmt.Sprintf("rules:\n  - {name: web, sport: tcp/%s, then: drop}\n", server[strings.LastIndex(server, ":")+1:]))
			mustFloodwall(t, "apply", file)
			says(`drops its answers by "web"`)
			policy("pass", "")
			mustFloodwall(t, "apply", file)
			mustFloodwall(t, "feeds", "refresh")
			policy("drop", fmt.Sprintf("rules:\n  - {name: fetch, from: 192.0.2.2, sport: tcp/%s, then: pass}\n", server[strings.LastIndex(server, ":")+1:]))
			mustFloodwall(t, "apply", file)
			mustFloodwall(t, "feeds", "refresh")
		})
	}
}

// newListServer serves a list at the other end of fw0, and returns its address.
func newListServer(t *testing.T) (address string) {
	peer := testutil.NewElsewhere(t)
	peer.Take(t, "fw1")
	var l net.Listener
	var err error
	peer.Do(func() {
		sh(t, "ip addr add 192.0.2.2/24 dev fw1; ip link set fw1 up")
		l, err = net.Listen("tcp", "192.0.2.2:0")
	})
	if err != nil {
		t.Fatal(err)
	}
	testutil.WaitUp(t, "fw0")
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "8.8.8.8\n") }))
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}
