package bench

import "fmt"

// installed adds a row for what a tool of the system installs at a site of its own.
func (b *builder) installed(name, label string, install func(*site) error) error {
	b.progress.show("installing %s", label)
	at, err := b.site()
	if err != nil {
		return err
	}
	reason, err := tolerate(install(at))
	if err != nil {
		return fmt.Errorf("%s: %w", label, err)
	}
	b.add(&rate{name: name, label: label, subject: subject{site: at}, missing: reason})
	return nil
}
