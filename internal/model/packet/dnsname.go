package packet

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// nameText writes a name that ends within wire, its labels separated by dots, without the dot at the end; the root is "".
// Bytes that are not printable, and dots and backslashes inside of labels, are written \DDD in decimal (RFC 1035, 5.1),
// so no two names are written alike, and a dot always stands between labels.
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

// DNSNameText writes a name as it stands at the start of a message's bytes, in lower case: as nameText does, but of a name that does not end within them the whole
// labels, with an ellipsis behind them.
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

// parseName reads what nameText writes, with a dot at the end or without.
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
