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

// A BodyError says why a body is not taken for a list.
type BodyError struct{ Why, Remedy string }

func (e *BodyError) Error() string { return e.Why }

// Hint is the remedy.
func (e *BodyError) Hint() string { return e.Remedy }

// read reads a body in a format, "" for the one that it looks like. bad is how many lines were not understood.
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
		case err != nil && f == CSV && data == 1: // the names of the columns
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

// mostUnzipped is the most bytes that a compressed body may have: more than those of ten million lines.
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

// detect tells the format by the first line that is neither empty nor a comment.
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

// line reads an entry. It is none when the line has none and needs none.
func (f Format) line(text string) ([]netip.Prefix, error) {
	switch f {
	case CSV:
		return csvLine(text)
	case NDJSON:
		return jsonLine(text)
	}
	return entry(text)
}

// csvLine reads a line of CSV. No address has a comma or a quote, so of quoted fields the quotes are cut.
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

// jsonLine reads an object. The last line of Spamhaus's lists describes the list.
func jsonLine(text string) ([]netip.Prefix, error) {
	var line struct{ Type, CIDR, Prefix, Network, Range, IP string }
	if err := json.Unmarshal([]byte(text), &line); err != nil {
		return nil, errors.New("no JSON object, or one of another form")
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

// entry reads the entry at the begin of a line. Bits behind the length of a prefix are ignored.
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
