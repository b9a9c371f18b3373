# Installs Bruckner into a prefix, takes it away again, and packs it.
#
#   make install PREFIX=/opt/bruckner      make uninstall PREFIX=/opt/bruckner
#   make tarball                           make wheel
#   make twice     builds in two other places, and compares the libraries byte by byte (5 minutes)
#
# The library is built for the C library of this machine; GLIBC=2.17 builds it for one that is as old, which needs cargo-zigbuild
# (pip install cargo-zigbuild ziglang).

PREFIX ?= /usr/local
DESTDIR ?=
LIBDIR ?= $(PREFIX)/lib
CARGO ?= cargo
PYTHON ?= python3
GLIBC ?=

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
MAJOR := $(firstword $(subst ., ,$(VERSION)))
SONAME := libbruckner.so.$(MAJOR)
LIBRARY := libbruckner.so.$(VERSION)
MACHINE := $(shell uname -m)

# Where sources of other crates lie does not show in what is built, so that everybody builds the same.
CARGO_HOME ?= $(HOME)/.cargo
REMAP := --remap-path-prefix=$(CARGO_HOME)=/cargo --remap-path-prefix=$(CURDIR)=/bruckner
FLAGS := $(strip $(filter-out $(REMAP),$(RUSTFLAGS)) $(REMAP))
ANYWHERE := BRUCKNER_SONAME=$(SONAME) RUSTFLAGS="$(FLAGS)"
TARGET_DIR ?= target/package

ifeq ($(GLIBC),)
BUILD := $(ANYWHERE) $(CARGO)
TARGET :=
OUT := $(TARGET_DIR)/release
else
BUILD := $(ANYWHERE) cargo-zigbuild
TARGET := --target $(MACHINE)-unknown-linux-gnu.$(GLIBC)
OUT := $(TARGET_DIR)/$(MACHINE)-unknown-linux-gnu/release
endif

STAGE := target/stage
INSTALL := install
AT := $(DESTDIR)$(PREFIX)
LIB_AT := $(DESTDIR)$(LIBDIR)

# Pages that refer to each other.
DOCS := README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md CITATION.cff LICENSE-MIT LICENSE-APACHE \
  $(shell find docs -name '*.md' -o -name '*.svg')
FILES := bin/bruckner bin/bruckner-run include/bruckner.h \
  share/bash-completion/completions/bruckner share/zsh/site-functions/_bruckner \
  share/fish/vendor_completions.d/bruckner.fish \
  share/modulefiles/bruckner/$(VERSION) share/modulefiles/bruckner/$(VERSION).lua \
  $(addprefix share/doc/bruckner/,$(DOCS))
LIBRARIES := $(LIBRARY) $(SONAME) libbruckner.so pkgconfig/bruckner.pc

.PHONY: flags build install uninstall tarball wheel twice clean

# The flags of a build, for others who want to share its files.
flags:
	@echo '$(FLAGS)'

build:
	$(BUILD) build --release --locked --target-dir $(TARGET_DIR) $(TARGET) -p bruckner-cli -p bruckner-preload
	rm -rf $(STAGE)
	mkdir -p $(STAGE)/man $(STAGE)/completions
	cp $(OUT)/libbruckner.so $(STAGE)/$(LIBRARY)
	cp $(OUT)/bruckner $(STAGE)/bruckner
	strip --strip-unneeded $(STAGE)/$(LIBRARY) $(STAGE)/bruckner
	$(STAGE)/bruckner generate --man $(STAGE)/man --completions $(STAGE)/completions
	packaging/needs $(STAGE)/$(LIBRARY) $(STAGE)/bruckner $(GLIBC)

install: build
	$(INSTALL) -d $(AT)/bin $(AT)/include $(LIB_AT)/pkgconfig $(AT)/share/man/man1 $(AT)/share/doc/bruckner \
	  $(AT)/share/bash-completion/completions $(AT)/share/zsh/site-functions $(AT)/share/fish/vendor_completions.d \
	  $(AT)/share/modulefiles/bruckner
	$(INSTALL) -m 755 $(STAGE)/bruckner $(AT)/bin/bruckner
	$(INSTALL) -m 755 packaging/bruckner-run $(AT)/bin/bruckner-run
	$(INSTALL) -m 755 $(STAGE)/$(LIBRARY) $(LIB_AT)/$(LIBRARY)
	ln -sf $(LIBRARY) $(LIB_AT)/$(SONAME)
	ln -sf $(SONAME) $(LIB_AT)/libbruckner.so
	$(INSTALL) -m 644 crates/preload/include/bruckner.h $(AT)/include/bruckner.h
	sed 's/@VERSION@/$(VERSION)/' packaging/bruckner.pc > $(LIB_AT)/pkgconfig/bruckner.pc
	$(INSTALL) -m 644 $(STAGE)/man/*.1 $(AT)/share/man/man1
	$(INSTALL) -m 644 $(STAGE)/completions/bruckner.bash $(AT)/share/bash-completion/completions/bruckner
	$(INSTALL) -m 644 $(STAGE)/completions/_bruckner $(AT)/share/zsh/site-functions/_bruckner
	$(INSTALL) -m 644 $(STAGE)/completions/bruckner.fish $(AT)/share/fish/vendor_completions.d/bruckner.fish
	sed 's/@VERSION@/$(VERSION)/' packaging/modules/tcl > $(AT)/share/modulefiles/bruckner/$(VERSION)
	sed 's/@VERSION@/$(VERSION)/' packaging/modules/lmod.lua > $(AT)/share/modulefiles/bruckner/$(VERSION).lua
	for page in $(DOCS); do $(INSTALL) -D -m 644 $$page $(AT)/share/doc/bruckner/$$page; done

uninstall:
	rm -f $(addprefix $(AT)/,$(FILES)) $(addprefix $(LIB_AT)/,$(LIBRARIES))
	rm -f $(AT)/share/man/man1/bruckner.1 $(AT)/share/man/man1/bruckner-*.1
	find $(AT)/share/doc/bruckner -depth -type d -empty -delete 2>/dev/null || true
	for place in share/modulefiles/bruckner share/modulefiles share/doc/bruckner share/doc share/man/man1 share/man \
	  share/bash-completion/completions share/bash-completion share/zsh/site-functions share/zsh \
	  share/fish/vendor_completions.d share/fish share include bin; do \
	  rmdir $(AT)/$$place 2>/dev/null || true; done
	rmdir $(LIB_AT)/pkgconfig $(LIB_AT) $(AT) 2>/dev/null || true

# A tree that works wherever it is unpacked.
tarball:
	rm -rf target/tarball
	$(MAKE) install PREFIX=/bruckner-$(VERSION) LIBDIR=/bruckner-$(VERSION)/lib DESTDIR=$(CURDIR)/target/tarball
	tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -C target/tarball -cf - bruckner-$(VERSION) \
	  | gzip -n > target/bruckner-$(VERSION)-$(MACHINE).tar.gz
	@echo target/bruckner-$(VERSION)-$(MACHINE).tar.gz

wheel: build
	$(PYTHON) packaging/python/make_wheel.py --version $(VERSION) --stage $(STAGE) --library $(LIBRARY) --out target

# What is committed, built in two places. Only the library is compared: the command is not the same.
twice:
	rm -rf target/twice
	for place in one another/place; do \
	  mkdir -p target/twice/$$place && git archive HEAD | tar -xf - -C target/twice/$$place && \
	  $(MAKE) -s -C target/twice/$$place build CARGO_HOME=$(CARGO_HOME) || exit 1; done
	cmp target/twice/one/$(STAGE)/$(LIBRARY) target/twice/another/place/$(STAGE)/$(LIBRARY)
	sha256sum target/twice/one/$(STAGE)/$(LIBRARY)

clean:
	$(CARGO) clean
