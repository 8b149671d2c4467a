package egress

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func TestAddressesAreJudged(t *testing.T) {
	lan, all := []string{"10.0.0.0/8", "127.0.0.0/8"}, []string{"0.0.0.0/0", "::/0"}
	for address, c := range map[string]struct {
		public, withLAN, withAll bool
	}{
		"8.8.8.8": {true, true, true}, "2606:4700::1111": {true, true, true}, "64:ff9b::808:808": {true, true, true},
		"10.1.2.3": {false, true, true}, "::ffff:10.1.2.3": {false, true, true}, "127.0.0.1": {false, true, true},
		"64:ff9b::a01:203": {false, true, true}, "2002:a01:203::1": {false, true, true}, "192.168.1.1": {false, false, true},
		"172.31.0.1": {false, false, true}, "100.64.0.1": {false, false, true}, "::1": {false, false, true}, "fd12::1": {false, false, true},
		"169.254.169.254": {}, "::ffff:a9fe:a9fe": {}, "64:ff9b::a9fe:a9fe": {}, "::169.254.169.254": {}, "2002:a9fe:a9fe::": {}, "fe80::1": {},
		"fe80::1%eth0": {}, "fd00:ec2::254": {}, "100.100.100.200": {}, "168.63.129.16": {}, "192.0.0.192": {}, "0.0.0.0": {}, "::": {},
		"224.0.0.1": {}, "ff02::1": {}, "255.255.255.255": {},
	} {
		t.Run(address, func(t *testing.T) {
			for name, p := range map[string]struct {
				allow []string
				want  bool
			}{"by default": {nil, c.public}, "with the LAN": {lan, c.withLAN}, "with everything": {all, c.withAll}} {
				err := Policy{Allow: prefixes(p.allow...)}.Check(netip.MustParseAddr(address))
				var f *ForbiddenError
				if (err == nil) != p.want || err != nil && !errors.As(err, &f) {
					t.Errorf("%s: got %v, want allowed %v", name, err, p.want)
				}
			}
		})
	}
}

func TestURLsAreJudgedBeforeAnyName(t *testing.T) {
	for text, want := range map[string]string{
		"https://hub.example/m.gguf":           "",
		"https://hub.example:8443/m.gguf":      "",
		"https://minio_1.svc/m":                "",
		"https://8.8.8.8/m":                    "",
		"http://hub.example/m.gguf":            "expected https",
		"ftp://hub.example/m":                  "expected https",
		"https://a@hub.example/m":              "user or a password",
		"https://u:passw0rd@hub.example/m":     "user or a password",
		"https://169.254.169.254/latest":       "never fetched",
		"https://[::ffff:a9fe:a9fe]/latest":    "never fetched",
		"https://[fe80::1%25eth0]/":            "never fetched",
		"https://127.0.0.1/":                   "private",
		"https://[::1]/":                       "private",
		"https://0x7f.1/":                      "neither",
		"https://0x7f000001/":                  "neither",
		"https://2130706433/":                  "neither",
		"https://127.1/":                       "neither",
		"https://017700000001/":                "neither",
		"https://169.254.169.254./latest":      "neither",
		"https://ⅰ69.254.169.254/":             "neither",
		"https://169。254。169。254/":             "neither",
		"https://local\u00adhost/":             "neither",
		"https:///m":                           "neither",
		"https://-x.example/":                  "neither",
		"https://x..example/":                  "neither",
		"https://" + strings.Repeat("a", 64):   "neither",
		"https://" + strings.Repeat("a.", 130): "neither",
	} {
		t.Run(text, func(t *testing.T) {
			u, err := url.Parse(text)
			if err != nil {
				return // nobody can ask for it
			}
			err = Policy{}.CheckURL(u, false)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("got %v, want %q", err, want)
			}
			if err != nil && strings.Contains(err.Error(), "passw0rd") {
				t.Errorf("%q holds a password", err)
			}
		})
	}
}

func TestPlainHTTPIsForEndpointsOfTheOperator(t *testing.T) {
	u, _ := url.Parse("http://hub.example/")
	if err := (Policy{}).CheckURL(u, true); err != nil {
		t.Error(err)
	}
}

func TestAShortenedURLHasNoSecrets(t *testing.T) {
	u, _ := url.Parse("https://u:p@hub.example:444/a/b?X-Amz-Signature=1#f")
	if got := Shorten(u); got != "https://hub.example:444/a/b" {
		t.Errorf("got %s", got)
	}
}

func TestNetworksAreRead(t *testing.T) {
	got, err := Networks(" 10.0.0.7/8, 192.168.1.7 ,fd00::/8,")
	if err != nil || len(got) != 3 || got[0].String() != "10.0.0.0/8" || got[1].String() != "192.168.1.7/32" || got[2].String() != "fd00::/8" {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := Networks("10.0.0.0/8,lan"); err == nil || !strings.Contains(err.Error(), `"lan"`) {
		t.Errorf("got %v", err)
	}
}
