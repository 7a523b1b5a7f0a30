// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/floodwall/floodwall/internal/os/safefile"
)

// ForeignUnitError says that a unit with the name of our unit belongs to another owner.
type ForeignUnitError struct{ File, Why string }

func (e *ForeignUnitError) Error() string { return fmt.Sprintf("unit %s: %s", e.File, e.Why) }

// Hint returns the remedy.
func (e *ForeignUnitError) Hint() string {
	unit := filepath.Base(e.File)
	if unit == additionName {
		unit = strings.TrimSuffix(filepath.Base(filepath.Dir(e.File)), ".d")
	}
	return "`systemctl cat " + unit + "` shows it; move it away if it is not needed"
}

// mark is the start of all files that this package writes. Files without it belong to the operator or to a distribution.
const mark = "# Written by `floodwall apply --boot`, and again when the policy names other devices.\n"

// header returns the first lines of a unit. A package's unit has another first line than mark: if an operator copies and changes it, the copy is the
// operator's.
func (u Units) header() string {
	first := mark
	if u.Packaged {
		first = "# Of the package floodwall. `floodwall apply --boot` adds the devices of the policy in " + operatorUnits + ".\n"
	}
	return first + "# `systemctl edit` makes changes that stay.\n"
}

func (u Units) names() []string {
	if u.Daemon {
		return []string{filterUnit, deviceUnit, DaemonUnit}
	}
	return []string{filterUnit, deviceUnit}
}

// whole returns the complete text of a unit.
func (u Units) whole(name string) string {
	switch name {
	case DaemonUnit:
		return u.daemon()
	case deviceUnit:
		return u.device()
	}
	return u.filter()
}

// text returns the text that this instance writes for a unit: additions if a package has the unit, otherwise the complete unit. It returns "" when
// there is nothing to write.
func (u Units) text(name string) string {
	if u.packaged(name) {
		return u.addition(name)
	}
	return u.whole(name)
}

// file returns the path of the file with the result of text.
func (u Units) file(name string) string {
	if u.packaged(name) {
		return u.additionFile(name)
	}
	return u.wholeFile(name)
}

func (u Units) wholeFile(name string) string { return u.inRoot(operatorUnits, name) }

// Write writes the units as files into a directory, for packages of a distribution. It does not call systemd.
func (u Units) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("units: %w", err)
	}
	for _, name := range u.names() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(u.whole(name)), 0o644); err != nil {
			return fmt.Errorf("units: %w", err)
		}
	}
	return nil
}

// read returns the text that this instance has written for a unit. It returns "" when there is none. A complete unit of this instance overrides the
// package's unit until the unit is written again.
func (u Units) read(name string) (string, error) {
	text, err := readOurs(u.wholeFile(name))
	if err == nil && text != "" && !strings.Contains(text, strings.TrimPrefix(u.command(), quoteWord(u.Binary))+"\n") {
		err = &ForeignUnitError{u.wholeFile(name), "it is that of another instance of floodwall"}
	}
	if err != nil || text != "" || !u.packaged(name) {
		return text, err
	}
	return readOurs(u.additionFile(name))
}

// readOurs returns the text of a file that this package has written. It returns "" when there is no such file.
func readOurs(file string) (string, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		if target, err := os.Readlink(file); err == nil { // for example by `systemctl mask`, which links to /dev/null
			return "", &ForeignUnitError{file, "it is a link to " + target}
		}
		return "", nil
	}
	text := string(content)
	switch {
	case err != nil:
		return "", fmt.Errorf("unit: %w", err)
	case text == "":
		return "", &ForeignUnitError{file, "it is masked"}
	case !strings.HasPrefix(text, mark):
		return "", &ForeignUnitError{file, "it was not written by floodwall"}
	}
	return text, nil
}

// write writes the units whose text has changed.
func (u Units) write(names ...string) error {
	for _, name := range names {
		installed, err := u.read(name)
		if err == nil && installed != u.text(name) {
			err = u.writeUnit(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeUnit writes the text of a unit into its file. It removes our other file for this unit, so that only one remains.
func (u Units) writeUnit(name string) error {
	if text := u.text(name); text != "" {
		if err := replaceFile(u.file(name), text); err != nil {
			return err
		}
	}
	for _, file := range []string{u.wholeFile(name), u.additionFile(name)} {
		if file == u.file(name) && u.text(name) != "" {
			continue
		}
		if err := removeOurs(file); err != nil {
			return err
		}
	}
	return nil
}

// removeOurs removes a file that this package has written. It also removes the directory of additions if the directory is then empty.
func removeOurs(file string) error {
	if text, err := readOurs(file); err != nil || text == "" {
		return nil // the file is not ours
	}
	if err := os.Remove(file); err != nil {
		return fmt.Errorf("removing a unit: %w", err)
	}
	if filepath.Base(file) == additionName {
		os.Remove(filepath.Dir(file)) // fails while the operator also has additions
	}
	return nil
}

// replaceFile replaces a unit's file atomically. If it fails, the file is unchanged.
func replaceFile(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("writing a unit: %w", err)
	}
	if err := safefile.Replace(file, []byte(text), 0o644); err != nil {
		return fmt.Errorf("writing a unit: %w", err)
	}
	return nil
}
