package packet

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
)

// ParseContent reads bytes as text in which hex digits, and blanks, may stand between bars: "GET |0d 0a|". A bar itself is
// |7c|. This is how Snort writes content.
func ParseContent(text string) ([]byte, error) {
	var b []byte
	for text != "" {
		plain, rest, barred := strings.Cut(text, "|")
		b = append(b, plain...)
		if !barred {
			break
		}
		digits, after, closed := strings.Cut(rest, "|")
		if !closed {
			return nil, fmt.Errorf("%q: the closing | is missing; a | itself is written |7c|", "|"+rest)
		}
		raw, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		if err != nil || len(raw) == 0 {
			return nil, fmt.Errorf("%q: want pairs of hex digits, as |0d 0a|", "|"+digits+"|")
		}
		b, text = append(b, raw...), after
	}
	return b, nil
}

// ContentText writes bytes as ParseContent reads them: what is not printable ASCII, and bars, in hex.
func ContentText(b []byte) string {
	var text strings.Builder
	for len(b) > 0 {
		n := 0
		for n < len(b) && isPlain(b[n]) {
			n++
		}
		text.Write(b[:n])
		b = b[n:]
		for n = 0; n < len(b) && !isPlain(b[n]); n++ {
			text.WriteByte("| "[min(n, 1)])
			text.WriteString(hex.EncodeToString(b[n : n+1]))
		}
		if n > 0 {
			text.WriteByte('|')
		}
		b = b[n:]
	}
	return text.String()
}

// LowerASCII is b with small ASCII letters for capital ones. No other byte changes, as it would in text of Unicode.
func LowerASCII(b []byte) []byte {
	out := bytes.Clone(b)
	for i, c := range out {
		if 'A' <= c && c <= 'Z' {
			out[i] = c + 'a' - 'A'
		}
	}
	return out
}

func isPlain(c byte) bool { return c >= ' ' && c <= '~' && c != '|' }
