// SPDX-License-Identifier: Apache-2.0

package integrations

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/policy"
)

// alertLine is an alert in the format of Suricata 7 with placeholders.
const alertLine = `{"timestamp":"TIME","flow_id":586497171462735,"in_iface":"eth0","event_type":"alert","src_ip":"198.51.100.7","src_port":50096,` +
	`"dest_ip":"192.0.2.1","dest_port":80,"proto":"TCP","pkt_src":"wire/pcap","tx_id":4,"alert":{"action":"blocked","gid":1,"signature_id":2018358,"rev":10,` +
	`"signature":"ET HUNTING GENERIC SUSPICIOUS POST","category":"Potentially Bad Traffic","severity":2,"metadata":{"created_at":["2014_04_04"]}},` +
	`"http":{"hostname":"192.0.2.1","url":"/x","http_method":"POST","protocol":"HTTP/1.1","length":0},"app_proto":"http","direction":"to_server",` +
	`"flow":{"pkts_toserver":4,"pkts_toclient":3,"bytes_toserver":563,"bytes_toclient":206,"start":"2026-11-22T22:24:37.251547+0000",` +
	`"src_ip":"198.51.100.7","dest_ip":"192.0.2.1","src_port":50096,"dest_port":80}}`

// realLine is an alert of Suricata 7.0.10 about a request that Suricata read from a device.
const realLine = `{"timestamp":"TIME","flow_id":520224214225489,"in_iface":"s0","event_type":"alert","src_ip":"192.0.2.9","src_port":59384,` +
	`"dest_ip":"192.0.2.1","dest_port":8000,"proto":"TCP","pkt_src":"wire/pcap","tx_id":0,"alert":{"action":"allowed","gid":1,"signature_id":2045001,` +
	`"rev":1,"signature":"OPS evil","category":"","severity":3},"http":{"hostname":"192.0.2.1","http_port":8000,"url":"/evil",` +
	`"http_user_agent":"curl/7.88.1","http_content_type":"text/html","http_method":"GET","protocol":"HTTP/1.1","status":404,"length":0},` +
	`"app_proto":"http","direction":"to_server","flow":{"pkts_toserver":4,"pkts_toclient":3,"bytes_toserver":354,"bytes_toclient":391,` +
	`"start":"2026-11-23T12:23:29.055588+0000","src_ip":"192.0.2.9","dest_ip":"192.0.2.1","src_port":59384,"dest_port":8000}}`

// forgedLine is an alert of Suricata 7.0.10 about a packet with the ports of an open connection and wrong sequence numbers. Only the time and the
// action in the line were changed.
const forgedLine = `{"timestamp":"TIME","flow_id":604897788,"event_type":"alert","src_ip":"198.51.100.8","src_port":40000,"dest_ip":"192.0.2.1",` +
	`"dest_port":80,"proto":"TCP","pkt_src":"wire/pcap","alert":{"action":"blocked","gid":1,"signature_id":2,"rev":1,` +
	`"signature":"OPS evil est","category":"","severity":3},"app_proto":"http","direction":"to_server","flow":{"pkts_toserver":5,` +
	`"pkts_toclient":3,"bytes_toserver":309,"bytes_toclient":200,"start":"2023-11-14T22:13:20.000000+0000",` +
	`"src_ip":"198.51.100.8","dest_ip":"192.0.2.1","src_port":40000,"dest_port":80}}`

// TestRead parses lines of eve.json. It checks which address each line bans and for how long, and why other lines lead to no ban.
func TestRead(t *testing.T) {
	t.Parallel()
	const ban = "198.51.100.7/32 2018358 ET HUNTING GENERIC SUSPICIOUS POST"
	usual := policy.Suricata{For: time.Hour}
	all, forgeable := policy.Suricata{For: time.Hour, All: true}, policy.Suricata{For: time.Hour, Forgeable: true}
	for _, c := range []struct {
		name, old, new string
		of             policy.Suricata
		want           string
	}{
		{"blocked", "", "", usual, ban},
		{"of a real Suricata", alertLine, realLine, all, "192.0.2.9/32 2045001 OPS evil"},
		{"IPv6", `"src_ip":"198.51.100.7","src_port"`, `"src_ip":"2001:0db8:0000:0000:0000:0000:0000:0007","src_port"`, usual,
			"2001:db8::7/128 2018358 ET HUNTING GENERIC SUSPICIOUS POST"},
		{"IPv4 in IPv6", `"src_ip":"198.51.100.7","src_port"`, `"src_ip":"::ffff:198.51.100.7","src_port"`, usual, ban},
		{"allowed", `"blocked"`, `"allowed"`, usual, "the rule blocks nothing: `alerts: all` in the policy takes them"},
		{"all alerts", `"blocked"`, `"allowed"`, all, ban},
		{"UDP", `"proto":"TCP"`, `"proto":"UDP"`, usual, "the sender may be forged: `trust: forgeable` in the policy takes them"},
		{"all alerts of UDP", `"proto":"TCP"`, `"proto":"UDP"`, all, "the sender may be forged: `trust: forgeable` in the policy takes them"},
		{"trusted UDP", `"proto":"TCP"`, `"proto":"UDP"`, forgeable, ban},
		{"a SYN alone", `"app_proto":"http",`, "", usual, "the sender may be forged: `trust: forgeable` in the policy takes them"},
		{"of a forged packet in a flow", alertLine, forgedLine, usual, "the sender may be forged: `trust: forgeable` in the policy takes them"},
		{"a packet in a flow", `"tx_id":4,`, "", usual, "the sender may be forged: `trust: forgeable` in the policy takes them"},
		{"a guess", `"tx_id":4,`, `"tx_id":4,"tx_guessed":true,`, usual, "the sender may be forged: `trust: forgeable` in the policy takes them"},
		{"a trusted packet in a flow", `"tx_id":4,`, "", forgeable, ban},
		{"unknown protocol", `"app_proto":"http"`, `"app_proto":"failed"`, usual, "the sender may be forged: `trust: forgeable` in the policy takes them"},
		{"capture", `"event_type"`, `"pcap_cnt":5,"event_type"`, usual, "Suricata has read the packet from a capture"},
		{"another event", `"event_type":"alert"`, `"event_type":"http"`, usual, ""},
		{"control characters", `ET HUNTING GENERIC`, `\u001b[31mET\r\n\u202eX\u0000`, usual, "198.51.100.7/32 2018358 [31mETX SUSPICIOUS POST"},
		{"no UTF-8", `ET HUNTING GENERIC`, "\xff\xfeET", usual, "198.51.100.7/32 2018358 ET SUSPICIOUS POST"},
		{"no address", `"src_ip":"198.51.100.7","src_port"`, `"src_ip":"fe80::1%eth0","src_port"`, usual, "there is no address of a sender"},
		{"a name", `"src_ip":"198.51.100.7","src_port"`, `"src_ip":"localhost","src_port"`, usual, "there is no address of a sender"},
		{"a prefix", `"src_ip":"198.51.100.7","src_port"`, `"src_ip":"0.0.0.0/0","src_port"`, usual, "there is no address of a sender"},
		{"no time", `"TIME"`, `"yesterday"`, usual, "there is no time"},
		{"no text", `"signature":"ET HUNTING GENERIC SUSPICIOUS POST"`, `"signature":null`, usual, "198.51.100.7/32 2018358 "},
		{"negative id", `2018358`, `-1`, usual, errNoEvent.Error()},
		{"cut", `"severity":2,"metadata"`, `}`, usual, errNoEvent.Error()},
		{"nested", `"created_at":["2014_04_04"]`, `"x":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000), usual, errNoEvent.Error()},
		{"an address in an object", `"src_ip":"198.51.100.7","src_port"`, `"src_ip":{"a":1},"src_port"`, usual, errNoEvent.Error()},
	} {
		line := alertLine
		if c.old != "" && !strings.Contains(line, c.old) {
			t.Fatalf("%s: the line has no %s", c.name, c.old)
		}
		now := time.Now()
		line = strings.ReplaceAll(strings.Replace(line, c.old, c.new, 1), "TIME", now.Format(eveTime))
		got, why, err := read([]byte(line), c.of, now)
		text := why
		if err != nil {
			text = err.Error()
		} else if got.Prefix.IsValid() {
			text += fmt.Sprintf("%s %s", got.Prefix, got.Why)
		}
		if text != c.want {
			t.Errorf("%s: %q, want %q", c.name, text, c.want)
		}
	}
	for _, line := range []string{"x", "[]", `"alert"`, "{", "\x00\x00{}", `{"alert"}`, strings.Repeat("{\"alert\":", 20_000) + "}"} {
		if _, _, err := read([]byte(line), usual, time.Now()); !errors.Is(err, errNoEvent) {
			t.Errorf("%.20q: %v, want %v", line, err, errNoEvent)
		}
	}
}

// TestEnd checks that the end of a ban depends on the time of its alert, and not on the time at which the alert is read.
func TestEnd(t *testing.T) {
	t.Parallel()
	for ago, want := range map[time.Duration]time.Duration{
		0: time.Hour, 20 * time.Minute: 40 * time.Minute, time.Hour - time.Millisecond: 0, 48 * time.Hour: 0,
		-time.Hour: time.Hour, // a clock that was set back
	} {
		now := time.Now()
		line := strings.ReplaceAll(alertLine, "TIME", now.Add(-ago).In(time.FixedZone("", -5*3600)).Format(eveTime))
		got, why, err := read([]byte(line), policy.Suricata{For: time.Hour}, now)
		if err != nil || got.Prefix.IsValid() && got.Until.Sub(now).Round(time.Millisecond) != want || (want == 0) != (why == "too old") {
			t.Errorf("after %v: banned until %v, %q, %v; want %v", ago, got.Until, why, err, want)
		}
	}
}
