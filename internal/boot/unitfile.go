package boot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ForeignUnitError says that a unit of our name is somebody else's.
type ForeignUnitError struct{ File, Why string }

func (e *ForeignUnitError) Error() string { return fmt.Sprintf("unit %s: %s", e.File, e.Why) }

// Hint says how to go on.
func (e *ForeignUnitError) Hint() string {
	return "`systemctl cat " + filepath.Base(e.File) + "` shows it; move it away if it is not needed"
}

func (u Units) names() []string {
	if u.Daemon {
		return []string{filterUnit, deviceUnit, DaemonUnit}
	}
	return []string{filterUnit, deviceUnit}
}

func (u Units) text(name string) string {
	switch name {
	case DaemonUnit:
		return u.daemon()
	case deviceUnit:
		return u.device()
	}
	return u.filter()
}

// Write writes the text of the units as files of a directory, for packages of a distribution. It tells systemd nothing.
func (u Units) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("units: %w", err)
	}
	for _, name := range u.names() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(u.text(name)), 0o644); err != nil {
			return fmt.Errorf("units: %w", err)
		}
	}
	return nil
}

func (u Units) file(name string) string { return u.inRoot("/etc/systemd/system", name) }

// read is the text of a unit that this instance has written; "" when there is none.
func (u Units) read(name string) (string, error) {
	file := u.file(name)
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
	if !strings.Contains(text, strings.TrimPrefix(u.command(), quoteWord(u.Binary))+"\n") {
		return "", &ForeignUnitError{file, "it is that of another instance of floodwall"}
	}
	return text, nil
}

// write writes the units that are not as they should be.
func (u Units) write() error {
	for _, name := range u.names() {
		installed, err := u.read(name)
		if err == nil && installed != u.text(name) {
			err = u.writeUnit(name, u.text(name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeUnit replaces a unit's file: it is there whole, or as it was.
func (u Units) writeUnit(name, text string) error {
	file := u.file(name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("writing a unit: %w", err)
	}
	next, err := os.CreateTemp(filepath.Dir(file), "."+name+"-*")
	if err != nil {
		return fmt.Errorf("writing a unit: %w", err)
	}
	defer os.Remove(next.Name()) // in vain when it was renamed
	_, err = next.WriteString(text)
	for _, then := range []func() error{
		func() error { return next.Chmod(0o644) },
		next.Sync,
		next.Close,
		func() error { return os.Rename(next.Name(), file) },
	} {
		if err == nil {
			err = then()
		}
	}
	if err != nil {
		next.Close()
		return fmt.Errorf("writing a unit: %w", err)
	}
	return syncDir(filepath.Dir(file))
}
