// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/model/addrs"
)

// Copy has the metadata of a fetched list.
type Copy struct {
	Set      string    `json:"set"`
	URL      string    `json:"url"`
	Fetched  time.Time `json:"fetched"`
	Format   Format    `json:"format"`
	ETag     string    `json:"etag,omitempty"`
	Modified string    `json:"modified,omitempty"` // the server's Last-Modified header, unchanged
	SHA256   string    `json:"sha256"`             // of the body
	Entries  int       `json:"entries"`            // the number of prefixes, without the removed ones
	Read     int       `json:"read"`               // the number of entries of the list before prefixes were removed
	Bad      int       `json:"unreadable,omitempty"`
	Removed  []Removed `json:"removed,omitempty"`
	More     int       `json:"more_removed,omitempty"`
	Content  uint32    `json:"content"` // a checksum of the lines below

	File string `json:"-"` // the file from which the copy was read
}

// screened returns the prefixes that were removed from the list.
func (c *Copy) screened() *Screened { return &Screened{Removed: c.Removed, More: c.More} }

// Reasons returns a text about the prefixes that were removed from the list, and why. It returns "" if none was removed.
func (c *Copy) Reasons() string { return c.screened().Reasons() }

// copyMark is the beginning of the first line of a copy. To readers of lists, that line is a comment.
const copyMark = "# floodwall feed "

// write returns the text of a copy: the first line with the metadata, and then one prefix per line.
func (c *Copy) write(set *addrs.Set) ([]byte, error) {
	var lines []byte
	c.Entries = 0
	for p := range set.Prefixes() {
		c.Entries++
		lines = append(lines, addrs.PrefixText(p)...)
		lines = append(lines, '\n')
	}
	c.Content = crc32.ChecksumIEEE(lines)
	head, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("copy of set %q: %w", c.Set, err)
	}
	return bytes.Join([][]byte{append([]byte(copyMark), head...), lines}, []byte("\n")), nil
}

// errDamaged is the error that a copy has changed since it was written.
var errDamaged = errors.New("is damaged")

// readHead reads the metadata of a copy without its content. It returns nil if there is no copy.
func readHead(file string) (*Copy, error) {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	line, err := bufio.NewReader(f).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("%s %w", file, errDamaged)
	}
	return parseHead(file, line)
}

func parseHead(file, line string) (*Copy, error) {
	text, ok := strings.CutPrefix(line, copyMark)
	c := &Copy{File: file}
	if !ok || json.Unmarshal([]byte(text), c) != nil {
		return nil, fmt.Errorf("%s %w", file, errDamaged)
	}
	return c, nil
}

// readCopy reads a copy. It returns nil if there is none.
func readCopy(file string) (*Copy, *addrs.Set, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	line, lines, _ := bytes.Cut(data, []byte("\n"))
	c, err := parseHead(file, string(line))
	if err != nil {
		return nil, nil, err
	}
	if crc32.ChecksumIEEE(lines) != c.Content {
		return nil, nil, fmt.Errorf("%s %w", file, errDamaged)
	}
	set, _, err := addrs.Read(bytes.NewReader(lines), file, 0)
	return c, set, err
}
