// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// flagLetters are tcpdump's letters for the TCP flags, from the lowest bit up. For ACK, tcpdump writes a dot. The notation accepts both A and the
// dot.
const flagLetters = "FSRPAUEW"

// parseFlags parses letters of flags, or the word none.
func parseFlags(text string) (flags uint8, ok bool) {
	if text == "none" {
		return 0, true
	}
	for _, c := range strings.ReplaceAll(text, ".", "A") {
		bit := strings.IndexRune(flagLetters, c)
		if bit < 0 {
			return 0, false
		}
		flags |= 1 << bit
	}
	return flags, text != ""
}

func formatFlags(flags uint8) string {
	var b strings.Builder
	for bit, c := range flagLetters {
		if flags>>bit&1 == 1 {
			b.WriteRune(c)
		}
	}
	if b.Len() == 0 {
		return "none"
	}
	return b.String()
}

func (s *Spec) parsePayload(value string) (err error) {
	if s.dns != nil {
		return errOnePayload
	}
	if digits, isHex := strings.CutPrefix(value, "0x"); isHex {
		s.payload, err = parseHex(digits)
		return err
	}
	if !strings.HasPrefix(value, `"`) {
		return fmt.Errorf("%q: want text in double quotes, or hex digits after 0x", value)
	}
	text, err := unquote(value)
	if err != nil {
		return err
	}
	s.payload, err = ParseContent(text)
	return err
}

func (s *Spec) formatPayload() (string, bool) {
	return strconv.Quote(ContentText(s.payload)), len(s.payload) > 0
}

// maxTags is the largest number of VLAN tags in a line: one more than the decoder reads.
const maxTags = maxVLANs + 1

func (s *Spec) parseVLANs(value string) error {
	for _, text := range strings.Split(value, ",") {
		id, err := parseNumber(text, VLANNone-1)
		if err != nil {
			return err
		}
		s.vlans = append(s.vlans, uint16(id))
	}
	if len(s.vlans) > maxTags {
		return fmt.Errorf("%q: want at most %d tags, the outermost first", value, maxTags)
	}
	return nil
}

func (s *Spec) formatVLANs() (string, bool) {
	var ids []string
	for _, id := range s.vlans {
		ids = append(ids, strconv.Itoa(int(id)))
	}
	return strings.Join(ids, ","), len(ids) > 0
}

// laterOffset is the offset in bytes of the second fragment of a datagram on a link with an MTU of 1500.
const laterOffset = 1480

func (s *Spec) parseFrag(value string) error {
	switch value {
	case "first":
		s.moreFrags = true
		s.put(numFrag, 0)
	case "later":
		s.put(numFrag, laterOffset)
	default:
		n, err := parseNumber(value, ipv4OffsetMask*8)
		if err != nil || n%8 != 0 {
			return fmt.Errorf("%q: want first, later, or an offset in bytes, a multiple of 8 up to %d", value, ipv4OffsetMask*8)
		}
		s.put(numFrag, n)
	}
	return nil
}

func (s *Spec) formatFrag() (string, bool) {
	if s.num[numFrag] == 0 && s.moreFrags {
		return "first", s.has(numFrag)
	}
	return strconv.Itoa(int(s.num[numFrag])), s.has(numFrag)
}

func (s *Spec) parseMF(value string) error {
	if value != "" {
		return errors.New("want no value")
	}
	s.moreFrags = true
	return nil
}

func (s *Spec) formatMF() (string, bool) { return "", s.moreFrags && s.num[numFrag] > 0 }

func (s *Spec) parseIPOptions(value string) (err error) {
	s.ipOptions, err = parseHex(value)
	if err == nil && len(s.ipOptions) > 40 {
		err = fmt.Errorf("%d bytes: want at most 40", len(s.ipOptions))
	}
	return err
}

func (s *Spec) formatIPOptions() (string, bool) {
	return hex.EncodeToString(s.ipOptions), len(s.ipOptions) > 0
}

func (s *Spec) parseExt(value string) error {
	for _, name := range strings.Split(value, ",") {
		i := slices.IndexFunc(extensionKinds, func(k extensionKind) bool { return k.name == name })
		if i < 0 {
			return fmt.Errorf("%q: want %s, in the order of the headers", name, extensionNames())
		}
		s.ext = append(s.ext, i)
	}
	return nil
}

func (s *Spec) formatExt() (string, bool) {
	var names []string
	for _, i := range s.ext {
		names = append(names, extensionKinds[i].name)
	}
	return strings.Join(names, ","), len(names) > 0
}

func extensionNames() string {
	var names []string
	for _, k := range extensionKinds {
		names = append(names, k.name)
	}
	return strings.Join(names, ",")
}

// checksumKind is whether a packet's checksums are right.
type checksumKind uint8

const (
	checksumRight checksumKind = iota
	checksumBad                // both the IPv4 header checksum and the L4 checksum are wrong
	checksumZero               // the L4 checksum is 0; in UDP this means that there is no checksum
)

func (s *Spec) parseChecksum(value string) error {
	switch value {
	case "bad":
		s.checksum = checksumBad
	case "0":
		s.checksum = checksumZero
	default:
		return fmt.Errorf("%q: want bad (all are wrong) or 0 (no L4 checksum)", value)
	}
	return nil
}

func (s *Spec) formatChecksum() (string, bool) {
	return [...]string{checksumBad: "bad", checksumZero: "0"}[s.checksum], s.checksum != checksumRight
}

func (s *Spec) parseSourceMAC(value string) error {
	mac, err := net.ParseMAC(value)
	if err != nil || len(mac) != len(s.sourceMAC) {
		return fmt.Errorf("%q: want an Ethernet address, as 02:00:00:00:00:01", value)
	}
	s.sourceMAC = [6]byte(mac)
	return nil
}

func (s *Spec) formatSourceMAC() (string, bool) {
	return net.HardwareAddr(s.sourceMAC[:]).String(), s.sourceMAC != defaultSource
}

// stateWords are the names of conntrack's states, indexed by their value.
var stateWords = []string{"new", "established", "related", "invalid", "untracked"}

func (s *Spec) parseState(value string) error {
	i := slices.Index(stateWords, value)
	if i < 0 {
		return fmt.Errorf("%q: want %s", value, strings.Join(stateWords, ", "))
	}
	s.state = uint32(i)
	return nil
}

func (s *Spec) formatState() (string, bool) { return stateWords[s.state], s.state != StateNew }

func (s *Spec) parseVerified(value string) error {
	if value != "" {
		return errors.New("want no value")
	}
	s.verified = true
	return nil
}

func (s *Spec) formatVerified() (string, bool) { return "", s.verified }

// parseHex parses pairs of hexadecimal digits.
func parseHex(text string) ([]byte, error) {
	b, err := hex.DecodeString(strings.TrimPrefix(text, "0x"))
	if err != nil || len(b) == 0 {
		return nil, fmt.Errorf("%q: want pairs of hex digits", text)
	}
	return b, nil
}
