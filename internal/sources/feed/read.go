// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/floodwall/floodwall/internal/model/addrs"
)

const longest = 64 << 10 // bytes of a line

// A BodyError is the reason why a body is not a valid list.
type BodyError struct{ Why, Remedy string }

func (e *BodyError) Error() string { return e.Why }

// Hint returns the remedy.
func (e *BodyError) Hint() string { return e.Remedy }

// read parses a body in the format f. If f is "", the format is detected from the content. bad is the number of invalid lines.
func read(body []byte, f Format, most int) (s *screen, format Format, bad int, err error) {
	body, err = unzipped(body)
	if err != nil {
		return nil, "", 0, &BodyError{"the body is compressed by gzip and cannot be unpacked: " + err.Error(), ""}
	}
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	start := bytes.TrimSpace(body)
	if len(start) > 0 && start[0] == '<' {
		return nil, "", 0, &BodyError{"the body is HTML or XML, not a list", "open the address in a browser: it may ask for a login, or have moved"}
	}
	if f == "" {
		f = detect(body)
	}
	s = &screen{}
	var firstBad error
	number, data := 0, 0
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, longest)
	for lines.Scan() {
		number++
		text := strings.TrimSpace(lines.Text())
		if text == "" || f != NDJSON && (text[0] == '#' || text[0] == ';' || strings.HasPrefix(text, "//")) {
			continue
		}
		data++
		prefixes, err := f.line(text)
		switch {
		case err != nil && f == CSV && data == 1: // the line has the names of the columns
		case err != nil:
			bad++
			if firstBad == nil {
				firstBad = fmt.Errorf("line %d: %w", number, err)
			}
		case prefixes != nil:
			s.take(prefixes)
		}
		if s.larger(most) {
			return nil, f, bad, tooMany(most)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, f, bad, &BodyError{fmt.Sprintf("line %d is longer than %d bytes: this is not a list of addresses", number+1, longest), ""}
	}
	if bad*addrs.BadShare > data {
		return nil, f, bad, &BodyError{fmt.Sprintf("%d of %d lines cannot be read as %s (%v)", bad, data, f, firstBad),
			"name the format of the list: format: list, csv or ndjson"}
	}
	if s.entries == 0 {
		return nil, f, bad, &BodyError{"the list has no entry", "a source that is empty on purpose is better left out of the policy"}
	}
	return s, f, bad, nil
}

// mostUnzipped is the largest size of a body after decompression, in bytes. It is enough for ten million lines.
const mostUnzipped = 256 << 20

func unzipped(body []byte) ([]byte, error) {
	text, err := addrs.Unzipped(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	body, err = io.ReadAll(io.LimitReader(text, mostUnzipped+1))
	if err == nil && len(body) > mostUnzipped {
		err = fmt.Errorf("it has more than %d MB", mostUnzipped>>20)
	}
	return body, err
}

func tooMany(most int) error {
	return &BodyError{fmt.Sprintf("the list has more than %d entries (a range counts as its prefixes)", most), "raise max: of the set, if it is meant to"}
}

// detect returns the format of a list. It is determined by the first line that is neither empty nor a comment.
func detect(body []byte) Format {
	for line := range bytes.Lines(body) {
		text := strings.TrimSpace(string(line[:min(len(line), longest)]))
		switch {
		case text == "" || text[0] == '#' || text[0] == ';':
		case text[0] == '{':
			return NDJSON
		case strings.ContainsRune(text, ',') && !addrs.IsNamedRange([]byte(text)):
			return CSV
		default:
			return List
		}
	}
	return List
}

// line parses the entry of a line. It returns nil for a line that may have no entry.
func (f Format) line(text string) ([]netip.Prefix, error) {
	switch f {
	case CSV:
		return csvLine(text)
	case NDJSON:
		return jsonLine(text)
	}
	return entry(text)
}

// csvLine parses a line of CSV. Addresses contain neither commas nor quotes, so it is enough to remove the quotes of quoted fields.
func csvLine(text string) ([]netip.Prefix, error) {
	fields := strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ';' || c == '\t' })
	for i := range fields {
		fields[i] = strings.Trim(strings.TrimSpace(fields[i]), `"'`)
	}
	if len(fields) == 0 {
		return nil, errors.New("no field")
	}
	return entry(strings.Join(fields, ","))
}

// jsonLine parses an object. It returns nil for an object without an address, such as the last line of Spamhaus's lists, which describes the list.
func jsonLine(text string) ([]netip.Prefix, error) {
	var line struct{ Type, CIDR, Prefix, Network, Range, IP string }
	if err := json.Unmarshal([]byte(text), &line); err != nil {
		return nil, errors.New("not a JSON object with an address or a prefix as text")
	}
	for _, text := range []string{line.CIDR, line.Prefix, line.Network, line.Range, line.IP} {
		if text != "" {
			return entry(text)
		}
	}
	if line.Type == "metadata" {
		return nil, nil
	}
	return nil, errors.New("the object has none of cidr, prefix, network, range and ip")
}

// entry parses the entry at the beginning of a line. Host bits that are set in a prefix are ignored.
func entry(text string) ([]netip.Prefix, error) {
	list, err := addrs.ParseLine([]byte(text))
	if err == nil {
		return list, nil
	}
	first, _, _ := strings.Cut(text, " ")
	if p, e := netip.ParsePrefix(strings.TrimRight(first, ",;")); e == nil {
		return addrs.ParseLine([]byte(p.Masked().String()))
	}
	return nil, err
}
