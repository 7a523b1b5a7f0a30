// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/floodwall/floodwall/internal/daemon/api"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestAPIExplain checks that the API and the command explain packets in the same way.
func TestAPIExplain(t *testing.T) {
	if !inside(t) {
		return
	}
	mustFloodwall(t, "apply", drops(t, 7))
	h := startDaemon(t)
	for _, packet := range []string{"udp 198.51.100.7:9 > 192.0.2.1:7", "tcp 198.51.100.7:9 > 192.0.2.1:80 S"} {
		a, err := post(readSocket, "/v1/explain", api.Question{Packet: packet})
		if err != nil || a.body != mustFloodwall(t, "explain", "--live", "--json", packet) {
			t.Errorf("%s: %v %v, not what the command says", packet, a, err)
		}
	}
	for body, want := range map[string]string{
		`{"packet": "udp"}`:             `400 {"error":"packet: `,
		`{"paket": "udp"}`:              `400 {"error":"the body cannot be read: json: unknown field`,
		`{"packet": "udp"} {}`:          `400 {"error":"the body has more than one value`,
		`{`:                             `400 {"error":"the body cannot be read`,
		strings.Repeat(" ", 5<<20):      `413 {"error":"the body is longer than`,
		`{"packet": 7}`:                 `400 {"error":"the body cannot be read`,
		`{"packet": "\u001b[31m udp x"`: `400 {"error":"the body cannot be read`,
	} {
		a, err := request(client(readSocket), http.MethodPost, "/v1/explain", []byte(body))
		var failure bytes.Buffer
		json.Compact(&failure, []byte(a.body))
		if got := fmt.Sprint(a.status, " ", failure.String()); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("body %.40q: %v, %s, want %s", body, err, got, want)
		}
	}
	h.must(200, readSocket, "/v1/health")
}

// TestAPIEntries reads a set page by page, on each target. All pages together must equal the list of the command.
func TestAPIEntries(t *testing.T) {
	if !inside(t) {
		return
	}
	h := startDaemon(t)
	var entries []string
	for i := range 250 {
		entries = append(entries, fmt.Sprintf("10.9.%d.%d", i*7%250, i), fmt.Sprintf("2001:db8:%x::/64", i*13%250))
	}
	for _, target := range []string{"xdp", "nftables", "iptables"} {
		mustFloodwall(t, "apply", drops(t, 7), "--target", target)
		mustFloodwall(t, append([]string{"block", "--for", "forever"}, entries...)...)
		var all []any
		pages, next := 0, ""
		for {
			a := h.must(200, readSocket, "/v1/sets/bans/entries?limit=64&after="+url.QueryEscape(next))
			page := values(t, a.body)
			all = append(all, page["entries"].([]any)...)
			pages++
			var more bool
			if next, more = page["next"].(string); !more {
				break
			}
		}
		var want []any
		if err := json.Unmarshal([]byte(mustFloodwall(t, "blocked", "--json")), &want); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(all) != fmt.Sprint(want) || pages != 8 || len(all) != 500 {
			t.Errorf("%s: %d entries in %d pages, want the %d of `blocked` in 8", target, len(all), pages, len(want))
		}
		mustFloodwall(t, "unload")
	}
	mustFloodwall(t, "apply", drops(t, 7))
	h.must(http.StatusNotFound, readSocket, "/v1/sets/none/entries")
	h.must(http.StatusBadRequest, readSocket, "/v1/sets/bans/entries?limit=10001")
	h.must(http.StatusBadRequest, readSocket, "/v1/sets/bans/entries?after=x")
}

// sampling writes a policy with a rule that has `sample`, and returns its path.
func sampling(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sampling.yaml")
	text := "devices: [fw0]\ndefault: pass\nchecks: off\nrules:\n  - {name: port7, proto: udp, port: 7, sample: 1/1, then: drop}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestAPICapture captures packets. The capture must have the requested number of packets, all of the rule. A second capture at the same time must be
// refused. After the client has disconnected, the next capture must succeed.
func TestAPICapture(t *testing.T) {
	if !inside(t) {
		return
	}
	mustFloodwall(t, "apply", sampling(t))
	h := startDaemon(t)
	h.must(http.StatusConflict, readSocket, "/v1/capture?rule=none")
	h.must(http.StatusBadRequest, readSocket, "/v1/capture?for=11m")
	first, err := client(readSocket).Get("http://floodwall/v1/capture")
	if err != nil || first.StatusCode != 200 {
		t.Fatalf("capture: %v %v", first, err)
	}
	h.must(http.StatusConflict, readSocket, "/v1/capture")
	first.Body.Close()
	var second *http.Response
	waitFor(t, "the end of the first capture", func() bool {
		second, err = client(readSocket).Get("http://floodwall/v1/capture?rule=port7&count=3")
		if err == nil && second.StatusCode != 200 {
			second.Body.Close()
		}
		return err == nil && second.StatusCode == 200
	})
	defer second.Body.Close()
	if err := testutil.Send("fw1", "udp 198.51.100.9:9 > 192.0.2.1:7", 5); err != nil {
		t.Fatal(err)
	}
	packets, err := pcapgo.NewNgReader(second.Body, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; ; n++ {
		frame, _, err := packets.ReadPacketData()
		if err != nil {
			break
		}
		if !bytes.Contains(frame, []byte{198, 51, 100, 9, 192, 0, 2, 1}) {
			t.Errorf("captured % x", frame)
		}
	}
	if n != 3 {
		t.Errorf("captured %d packets, want 3", n)
	}
}

// TestAPIEvents follows events, disconnects, and reconnects. The stream must continue with the next event. One event is a ban by the daemon.
func TestAPIEvents(t *testing.T) {
	if !inside(t) {
		return
	}
	file := filepath.Join(t.TempDir(), "ban.yaml")
	text := `devices: [fw0]
default: pass
checks: off
sets: {bans: {dynamic: true, max: 100, timeout: 1h}}
rules:
  - {name: listed, from: $bans, then: drop}
  - {name: flood, proto: udp, port: 9, over: {rate: 2/day, per: from/32, burst: 2, max: 1000, ban: {for: 10m, trust: forgeable}}, then: drop}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	mustFloodwall(t, "apply", file)
	h := startDaemon(t)
	waitFor(t, "the detector", func() bool { return strings.Contains(h.said.String(), "banning who exceeds") })
	if err := testutil.Send("fw1", "udp 198.51.100.9:5 > 192.0.2.1:9", 30); err != nil {
		t.Fatal(err)
	}
	first := h.followed("/v1/events", func(e api.Event) bool { return strings.Contains(e.Text, "banned 198.51.100.9") })
	again := h.followed(fmt.Sprintf("/v1/events?after=%d", first.ID-1), func(api.Event) bool { return true })
	if again.ID != first.ID || again.Text != first.Text {
		t.Errorf("after event %d comes %+v, want %+v", first.ID-1, again, first)
	}
	if scrape := h.must(200, readSocket, "/v1/metrics").body; !strings.Contains(scrape, `floodwall_bans_total{origin="automatic"} 1`) {
		t.Errorf("no automatic ban in\n%s", scrape)
	}
}

// followed reads events until an event fulfils a condition, and returns this event.
func (h *apiHost) followed(path string, is func(api.Event) bool) (e api.Event) {
	h.Helper()
	response, err := client(readSocket).Get("http://floodwall" + path)
	if err != nil {
		h.Fatal(err)
	}
	defer response.Body.Close()
	for in := bufio.NewScanner(response.Body); in.Scan(); {
		if data, ok := strings.CutPrefix(in.Text(), "data: "); ok {
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				h.Fatalf("event %q: %v", data, err)
			}
			if is(e) {
				return e
			}
		}
	}
	h.Fatalf("GET %s ended, and the daemon said:\n%s", path, h.said)
	return e
}
