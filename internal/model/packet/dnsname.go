// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// nameText returns a name in wire format as text, with dots between labels, and without the dot at the end. The root is "". The name must end within
// wire. Bytes that are not printable, and dots and backslashes within labels, become \DDD in decimal (RFC 1035, 5.1). So two different names never
// have the same text, and every dot separates two labels.
func nameText(wire []byte) string {
	var b []byte
	for at := 0; wire[at] != 0; at += 1 + int(wire[at]) {
		if at > 0 {
			b = append(b, '.')
		}
		for _, c := range wire[at+1 : at+1+int(wire[at])] {
			if c <= ' ' || c > '~' || c == '.' || c == '\\' {
				b = fmt.Appendf(b, `\%03d`, c)
			} else {
				b = append(b, c)
			}
		}
	}
	return string(b)
}

// DNSNameText returns the name at the start of wire as text, in lower case, in the form of nameText. If the name does not end within wire, it returns
// the complete labels, followed by an ellipsis.
func DNSNameText(wire []byte) string {
	for at := 0; at < len(wire); at += 1 + int(wire[at]) {
		if wire[at] == 0 {
			return strings.ToLower(nameText(wire[:at+1]))
		}
		if next := at + 1 + int(wire[at]); next >= len(wire) {
			return strings.ToLower(nameText(append(slices.Clone(wire[:at]), 0))) + ".…"
		}
	}
	return ""
}

// parseName parses a name in the form of nameText. The text may have a dot at the end.
func parseName(text string) (wire []byte, err error) {
	if text = strings.TrimSuffix(text, "."); text == "" {
		return []byte{0}, nil
	}
	for label := range strings.SplitSeq(text, ".") {
		bytes, err := parseLabel(label)
		if err != nil {
			return nil, fmt.Errorf("name %q: %w", text, err)
		}
		wire = append(append(wire, byte(len(bytes))), bytes...)
	}
	if wire = append(wire, 0); len(wire) > maxName {
		return nil, fmt.Errorf("name of %d bytes: want at most %d, with a length byte for each label and for the root",
			len(wire), maxName)
	}
	return wire, nil
}

func parseLabel(text string) (label []byte, err error) {
	for text != "" {
		plain, escaped, found := strings.Cut(text, `\`)
		label = append(label, plain...)
		if !found {
			break
		}
		n, err := strconv.ParseUint(escaped[:min(3, len(escaped))], 10, 8)
		if err != nil || len(escaped) < 3 {
			return nil, errors.New(`want three decimal digits up to 255 behind \`)
		}
		label, text = append(label, byte(n)), escaped[3:]
	}
	if len(label) == 0 || len(label) > maxLabel {
		return nil, fmt.Errorf("label of %d bytes: want 1 to %d", len(label), maxLabel)
	}
	return label, nil
}
