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

// event is what counts of a line of eve.json ("Eve JSON Format" in the user guide of Suricata 7 and 8).
type event struct {
	Time     string  `json:"timestamp"`
	Type     string  `json:"event_type"`
	Source   string  `json:"src_ip"`
	Protocol string  `json:"proto"`
	App      string  `json:"app_proto"`
	Of       *uint64 `json:"tx_id"`      // the request or answer that the rule matched; nil: it matched none
	Guessed  bool    `json:"tx_guessed"` // tx_id is a guess: the rule matched a packet, or bytes of the stream
	Packet   uint64  `json:"pcap_cnt"`   // the number of the packet in a capture that Suricata reads; 0: it came from the network
	Alert    struct {
		Action    string `json:"action"` // "blocked" when the rule drops and Suricata can, or when it rejects; else "allowed"
		ID        uint64 `json:"signature_id"`
		Signature string `json:"signature"`
	} `json:"alert"`
}

// errNoEvent is a line that is no event of eve.json.
var errNoEvent = errors.New("no event")

// eveTime is how Suricata writes times.
const eveTime = "2006-01-02T15:04:05.999999999-0700"

// alertWord is in each line of an alert: a line without it need not be parsed.
var alertWord = []byte(`"alert"`)

// read is the ban for a line. why says why an alert bans nobody. A line that is no alert has neither.
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
		Prefix: netip.PrefixFrom(source, source.BitLen()), For: left, Origin: ban.Suricata,
		Why: fmt.Sprintf("%d %s", e.Alert.ID, printable(e.Alert.Signature)),
	}, "", nil
}

// proven reports whether the sender of a packet has answered at its address: the rule matched a request or an answer, which Suricata parses in
// data that the other side has acknowledged of a TCP stream after a whole handshake. It writes "failed" as the protocol when it has
// recognized none. A rule that matched a packet alone proves nothing: also a forged packet, with wrong sequence numbers, has the ports of
// a flow, and its alert the protocol of that flow (DetectRulePacketRules of detect.c in Suricata 7 and 8).
func proven(e event) bool {
	return e.Protocol == "TCP" && e.App != "" && e.App != "failed" && e.Of != nil && !e.Guessed
}

// printable is a text without control characters and what is no UTF-8.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, text)
}
