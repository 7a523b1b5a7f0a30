// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// eve is the file eve.json, to which Suricata writes alerts.
type eve struct {
	*testing.T
	path string
}

// add appends lines to the file.
func (e eve) add(lines ...string) {
	e.Helper()
	f, err := os.OpenFile(e.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		e.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(strings.Join(lines, "\n") + "\n"); err != nil {
		e.Fatal(err)
	}
}

// alert returns an alert about a packet from an address, in the format of Suricata 7.
func alert(from, protocol, action, text string) string {
	return fmt.Sprintf(`{"timestamp":"%s","flow_id":1676750115612680,"in_iface":"fw0","event_type":"alert","src_ip":"%s","src_port":35361,"dest_ip":"192.0.2.1",`+
		`"dest_port":80,"proto":"%s","pkt_src":"wire/pcap","tx_id":1,"alert":{"action":"%s","gid":1,"signature_id":2045001,"rev":1,"signature":"%s",`+
		`"category":"A Network Trojan was detected","severity":1},"app_proto":"http","flow":{"pkts_toserver":4,"pkts_toclient":3}}`,
		time.Now().Format("2006-01-02T15:04:05.000000-0700"), from, protocol, action, text)
}

// TestSuricata appends alerts to eve.json. Packets from the senders in the alerts must no longer reach a real socket. That must also hold after the
// file was moved and truncated, and after hostile lines. No protected address may be banned.
func TestSuricata(t *testing.T) {
	if !inside(t) {
		return
	}
	s, e := serve(t), eve{t, filepath.Join(t.TempDir(), "eve.json")}
	policy := filepath.Join(filepath.Dir(e.path), "policy.yaml")
	text := strings.Replace(fail2banPolicy, "sets:", "daemon: {suricata: "+e.path+"}\nsets:", 1)
	writeFile(t, policy, text)
	const one, two, six, hand, never, udp, old = "198.51.100.7", "203.0.114.9", "2001:db8:7::1", "198.51.100.8", "198.51.100.77", "198.51.100.10", "198.51.100.11"
	all := []string{one, two, six, hand, never, udp, old}
	e.add(alert(old, "TCP", "blocked", "old"))
	if out := mustFloodwall(t, "apply", policy); !strings.Contains(out, "nobody bans whom Suricata warns of while `floodwall daemon` does not run") {
		t.Errorf("apply without a daemon says:\n%s", out)
	}
	mustFloodwall(t, "block", hand, "--for", "forever")
	h := startDaemon(t)
	s.also = func() string { return h.said.String() }
	said := func(text string) {
		t.Helper()
		waitFor(t, "the daemon to say "+text, func() bool { return strings.Contains(h.said.String(), text) })
	}
	said("suricata: follows " + e.path)

	e.add(alert(one, "TCP", "blocked", `ET \u001b[2J\u0007SCAN`), alert(six, "TCP", "blocked", "ET SCAN"), alert(hand, "TCP", "blocked", "x"),
		alert(never, "TCP", "blocked", "x"), alert("192.0.2.1", "TCP", "blocked", "x"), alert("203.0.113.5", "TCP", "blocked", "x"),
		alert(udp, "UDP", "blocked", "x"), alert(two, "TCP", "allowed", "x"), "no event", `{"alert":`, alert("0.0.0.0/0", "TCP", "blocked", "x"))
	s.banned("after alerts", all, one, six, hand)
	out := mustFloodwall(t, "blocked")
	if !matches(one+` +bans +(1h|59m)\S* +suricata +2045001 ET \[2JSCAN`, out) || !matches(hand+` +bans +forever +manual`, out) || strings.Contains(out, "203.0.113.5") {
		t.Errorf("blocked prints\n%s", out)
	}
	said("suricata: 2 lines are no events in JSON")
	said("192.0.2.1 has in it 192.0.2.1, an address of this host")
	said("sender may be forged: `trust: forgeable` in the policy takes them")
	if strings.ContainsAny(h.said.String(), "\x1b\x07") {
		t.Errorf("the daemon prints control characters: %q", h.said)
	}

	// The file is rotated twice: first by renaming, while the policy changes, and then by copying.
	if err := os.Rename(e.path, e.path+".1"); err != nil {
		t.Fatal(err)
	}
	writeFile(t, policy, strings.Replace(text, "suricata: "+e.path, "suricata: {file: "+e.path+", alerts: all, trust: forgeable, for: 10m}", 1))
	mustFloodwall(t, "apply", policy)
	e.add(alert(two, "TCP", "allowed", "x"))
	s.banned("after a rotation", all, one, two, six, hand)
	if err := os.Truncate(e.path, 0); err != nil {
		t.Fatal(err)
	}
	e.add(alert(udp, "UDP", "allowed", "x"))
	s.banned("after the file was cut", all, one, two, six, hand, udp)
	if out := mustFloodwall(t, "blocked"); !matches(udp+` +bans +(10m|9m)\S* +suricata`, out) {
		t.Errorf("blocked prints\n%s", out)
	}

	// The next daemon starts to read at the end of the file. It must not make a ban again that a person has ended. Other bans must survive the end of
	// the daemon.
	h.kill()
	mustFloodwall(t, "unblock", udp)
	h = startDaemon(t)
	said("suricata: follows " + e.path)
	e.add("{}")
	s.banned("after another daemon", all, one, two, six, hand)
	e.add(alert(udp, "TCP", "blocked", "x"))
	s.banned("after an alert", all, one, two, six, hand, udp)
	if scrape := h.must(200, readSocket, "/v1/metrics").body; !strings.Contains(scrape, `floodwall_bans_total{origin="suricata"} 5`) {
		t.Errorf("metrics: %s", grep(scrape, "bans_total"))
	}
}
