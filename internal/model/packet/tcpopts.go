// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"fmt"
	"strings"
)

const (
	defaultMSS    = 1460 // bytes of an Ethernet frame without the IPv4 and TCP headers
	maxTCPOptions = 40   // bytes: 15 units of 4, minus the header
)

func (s *Spec) parseTCPOptions(value string) error {
	b, err := tcpOptions(value)
	if err == nil && len(b) > maxTCPOptions {
		err = fmt.Errorf("%d bytes: want at most %d", len(b), maxTCPOptions)
	}
	s.tcpText = value
	return err
}

func (s *Spec) formatTCPOptions() (string, bool) { return s.tcpText, s.tcpText != "" }

// tcpOptions parses names of TCP options, the word none, or hexadecimal digits.
func tcpOptions(text string) (b []byte, err error) {
	if text == "none" {
		return nil, nil
	}
	if b, err := parseHex(text); err == nil {
		return b, nil
	}
	for _, item := range strings.Split(text, ",") {
		if b, err = appendTCPOption(b, item); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func appendTCPOption(b []byte, item string) ([]byte, error) {
	name, value, _ := strings.Cut(item, ":")
	switch name {
	case "mss":
		n, err := parseNumber(value, 65535)
		return binary.BigEndian.AppendUint16(append(b, tcpOptMSS, 4), uint16(n)), err
	case "ws":
		n, err := parseNumber(value, 255)
		return append(b, tcpOptWinScale, 3, byte(n)), err
	}
	switch item {
	case "sack":
		return append(b, tcpOptSACK, 2), nil
	case "ts":
		return append(b, tcpOptTimestamp, 10, 0, 0, 0, 1, 0, 0, 0, 0), nil
	case "nop":
		return append(b, tcpOptNop), nil
	case "eol":
		return append(b, tcpOptEnd), nil
	}
	return nil, fmt.Errorf("%q: want mss:NUMBER, sack, ts, ws:NUMBER, nop, eol, none, or hex digits", item)
}
