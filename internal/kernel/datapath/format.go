// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// The state of an instance can be older or newer than the floodwall that reads it. So the directory has its format in a file name, and each
// generation has the formats of its maps in a text. A floodwall that does not know a format returns an error and changes nothing.

// stateFormat is the format of the directory. A directory of the first format has no file with the format, and no pinAlive. A floodwall that knows
// only the first format refuses a directory with an unknown file name. That is why the format is in a file name.
const stateFormat = 2

const formatPrefix = "FORMAT-"

// formatName returns the file name for a format. A floodwall that knows only the first format prints this name in its error message.
func formatName(n int) string { return formatPrefix + strconv.Itoa(n) + "-needs-a-newer-floodwall" }

// formatNumber is the inverse of formatName.
func formatNumber(name string) (n int, ok bool) {
	rest, ok := strings.CutPrefix(name, formatPrefix)
	number, _, _ := strings.Cut(rest, "-")
	n, err := strconv.Atoi(number)
	return n, ok && err == nil
}

// checkFormat returns an error for an unknown format.
func (s *State) checkFormat(n int) error {
	if n <= stateFormat {
		return nil
	}
	return &StateError{Dir: s.dir, Cause: fmt.Sprintf("has format %d, and this floodwall knows formats up to %d: a newer one made it", n, stateFormat),
		Remedy: "use that one; to return to this one, `floodwall unload` with that one and apply with this one, with a moment without a filter between them"}
}

// setFormat records the format in the directory.
func (s *State) setFormat() error {
	path := s.path(formatName(stateFormat))
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	return pinText(path, "format", nil)
}

// FormatError says that another version has loaded a generation, one of whose maps has a format that this version does not know.
type FormatError struct {
	Generation   int
	Map          string
	Theirs, Ours int
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("generation %d was loaded by another version of floodwall: its %s has format %d, and this version knows format %d",
		e.Generation, e.Map, e.Theirs, e.Ours)
}

// Hint is the remedy.
func (e *FormatError) Hint() string {
	return "apply the policy again with this version, or use that one"
}

// pinFormats is the name of the text with the formats of a generation's maps, as JSON. It leaves out maps of format 1.
const pinFormats = "formats"

func writeFormats(dir string) error {
	text, err := json.Marshal(image.Formats())
	if err != nil {
		return err
	}
	return pinText(dir+"/"+pinFormats, pinFormats, text)
}

func (g *Generation) readFormats() error {
	text, err := readText(g.dir+"/"+pinFormats, pinFormats)
	if errors.Is(err, os.ErrNotExist) {
		return nil // the version that loaded it stored no formats: all are 1
	}
	if err == nil {
		err = json.Unmarshal(text, &g.formats)
	}
	return err
}

// Knows returns a *FormatError if one of the named maps of the generation has a format that this version does not know.
func (g *Generation) Knows(names ...string) error {
	for _, name := range names {
		theirs := max(g.formats[name], 1)
		if !image.Readable(name, theirs) {
			return &FormatError{g.Number, name, theirs, image.Format(name)}
		}
	}
	return nil
}

// shares returns a *FormatError if a program of this version cannot take over the named map of the generation.
func (g *Generation) shares(name string) error {
	if theirs := max(g.formats[name], 1); theirs != image.Format(name) {
		return &FormatError{g.Number, name, theirs, image.Format(name)}
	}
	return nil
}

// pinned opens the named map of the generation.
func (g *Generation) pinned(name string) (*ebpf.Map, error) {
	if err := g.Knows(name); err != nil {
		return nil, err
	}
	return ebpf.LoadPinnedMap(g.dir+"/"+pinName(name), nil)
}

// unlessForeign returns nil for a *FormatError, because a map of an unknown format is not taken over. It returns any other error unchanged.
func unlessForeign(err error) error {
	var foreign *FormatError
	if errors.As(err, &foreign) {
		return nil
	}
	return err
}
