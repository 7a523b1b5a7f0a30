// SPDX-License-Identifier: Apache-2.0

package integrations

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unicode"

	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/policy"
)

// event contains the used fields of a line of eve.json ("Eve JSON Format" in the user guide of Suricata 7 and 8).
type event struct {
	Time     string  `json:"timestamp"`
	Type     string  `json:"event_type"`
	Source   string  `json:"src_ip"`
	Protocol string  `json:"proto"`
	App      string  `json:"app_proto"`
	Of       *uint64 `json:"tx_id"`      // the number of the request or answer that the rule matched; nil: none
	Guessed  bool    `json:"tx_guessed"` // tx_id is a guess: the rule matched a packet, or bytes of the stream
	Packet   uint64  `json:"pcap_cnt"`   // the packet's number in a capture that Suricata reads; 0: it came from the network
	Alert    struct {
		Action    string `json:"action"` // "blocked" when the rule rejects, or drops while Suricata can drop; otherwise "allowed"
		ID        uint64 `json:"signature_id"`
		Signature string `json:"signature"`
	} `json:"alert"`
}

// errNoEvent is the error for a line that is not an event of eve.json.
var errNoEvent = errors.New("no event")

// eveTime is the format of Suricata's times.
const eveTime = "2006-01-02T15:04:05.999999999-0700"

// alertWord occurs in every line of an alert. So a line without it need not be parsed.
var alertWord = []byte(`"alert"`)

// read parses a line into a ban. If an alert leads to no ban, why is the reason. For a line that is no alert, b and why are empty.
func read(line []byte, of policy.Suricata, now time.Time) (b ban.Ban, why string, err error) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return b, "", nil
	}
	if line[0] != '{' || line[len(line)-1] != '}' {
		return b, "", errNoEvent
	}
	if !bytes.Contains(line, alertWord) {
		return b, "", nil
	}
	var e event
	if json.Unmarshal(line, &e) != nil {
		return b, "", errNoEvent
	}
	if e.Type != "alert" {
		return b, "", nil
	}
	at, err := time.Parse(eveTime, e.Time)
	source, invalid := netip.ParseAddr(e.Source)
	switch {
	case err != nil:
		return b, "there is no time", nil
	case invalid != nil || source.Zone() != "":
		return b, "there is no address of a sender", nil
	case e.Packet != 0:
		return b, "Suricata has read the packet from a capture", nil
	case !of.All && e.Alert.Action != "blocked":
		return b, "the rule blocks nothing: `alerts: all` in the policy takes them", nil
	case !of.Forgeable && !proven(e):
		return b, "the sender may be forged: `trust: forgeable` in the policy takes them", nil
	}
	left := of.For
	if at.Before(now) {
		left -= now.Sub(at)
	}
	if left < time.Second {
		return b, "too old", nil
	}
	source = source.Unmap()
	return ban.Ban{
		Prefix: netip.PrefixFrom(source, source.BitLen()), Until: now.Add(left), Origin: ban.Suricata,
		Why: fmt.Sprintf("%d %s", e.Alert.ID, printable(e.Alert.Signature)),
	}, "", nil
}

// proven reports whether the sender of a packet has received answers at its address. This is proved when the rule matched a request or an answer,
// because Suricata parses these only in data of a TCP stream that the other side has acknowledged, after a complete handshake. Suricata writes
// "failed" as the protocol when it has recognized none. A rule that matched only a packet proves nothing. The reason is that a forged packet with
// wrong sequence numbers also has the ports of a flow, and its alert has the protocol of that flow (DetectRulePacketRules of detect.c in Suricata 7
// and 8).
func proven(e event) bool {
	return e.Protocol == "TCP" && e.App != "" && e.App != "failed" && e.Of != nil && !e.Guessed
}

// printable removes control characters and invalid UTF-8 from a text.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, text)
}
