package boot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/floodwall/floodwall/internal/os/safefile"
)

// ForeignUnitError says that a unit of our name is somebody else's.
type ForeignUnitError struct{ File, Why string }

func (e *ForeignUnitError) Error() string { return fmt.Sprintf("unit %s: %s", e.File, e.Why) }

// Hint says how to go on.
func (e *ForeignUnitError) Hint() string {
	unit := filepath.Base(e.File)
	if unit == additionName {
		unit = strings.TrimSuffix(filepath.Base(filepath.Dir(e.File)), ".d")
	}
	return "`systemctl cat " + unit + "` shows it; move it away if it is not needed"
}

// mark begins the files that this package writes. Others are the operator's or a distribution's.
const mark = "# Written by `floodwall apply --boot`, and again when the policy names other devices.\n"

// header begins a unit. A unit of a package says so, as what an operator makes of a copy of it is the operator's.
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

// whole is the text of a whole unit.
func (u Units) whole(name string) string {
	switch name {
	case DaemonUnit:
		return u.daemon()
	case deviceUnit:
		return u.device()
	}
	return u.filter()
}

// text is what this instance writes for a unit: additions to the package's unit if there is one, otherwise the whole unit. It is ""
// when there is nothing to write.
func (u Units) text(name string) string {
	if u.packaged(name) {
		return u.addition(name)
	}
	return u.whole(name)
}

// file is where text goes.
func (u Units) file(name string) string {
	if u.packaged(name) {
		return u.additionFile(name)
	}
	return u.wholeFile(name)
}

func (u Units) wholeFile(name string) string { return u.inRoot(operatorUnits, name) }

// Write writes the text of the units as files of a directory, for packages of a distribution. It tells systemd nothing.
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

// read is the text that this instance has written for a unit; "" when there is none. A whole unit of this instance hides the one of
// a package until it is written again.
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

// readOurs is the text of a file that this package has written; "" when there is none.
func readOurs(file string) (string, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		if target, err := os.Readlink(file); err == nil { // `systemctl mask`, for one, where the target is /dev/null
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

// write writes the units that are not as they should be.
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

// writeUnit writes what this instance says of a unit, and nothing else of ours remains of the unit.
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

// removeOurs removes a file if this package has written it, and the directory of additions with it if nothing else is there.
func removeOurs(file string) error {
	if text, err := readOurs(file); err != nil || text == "" {
		return nil // not ours
	}
	if err := os.Remove(file); err != nil {
		return fmt.Errorf("removing a unit: %w", err)
	}
	if filepath.Base(file) == additionName {
		os.Remove(filepath.Dir(file)) // in vain while the operator has additions too
	}
	return nil
}

// replaceFile replaces a unit's file: it is there whole, or as it was.
func replaceFile(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("writing a unit: %w", err)
	}
	if err := safefile.Replace(file, []byte(text), 0o644); err != nil {
		return fmt.Errorf("writing a unit: %w", err)
	}
	return nil
}
