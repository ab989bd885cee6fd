# drainbench and drainer in a small image, as a user without rights:
#
#   docker build --tag drainbench .
#   docker run --rm drainbench drainbench check smoke
#   docker run --rm --network host --env DRAINBENCH_DATABASE_URL --env DRAINBENCH_AMQP_URL \
#       --user "$(id -u)" --volume "$PWD/reports/local:/work/reports/local" drainbench drainbench verify smoke
#
# There are no servers in it: it judges those that the two URLs name. Any builder will do, BuildKit or the old one.
# On a closed network BUILDER and BASE name any image with the libc of the machine that built the binaries, and what is
# in `prebuilt` is taken instead of building it: see make_image in scripts/rigs.

ARG BUILDER=rust:1-slim-bookworm
ARG BASE=debian:bookworm-slim

FROM ${BUILDER} AS build
# What a record says it was made with; there is no .git in here.
ARG COMMIT
ENV DRAINBENCH_COMMIT=${COMMIT}
WORKDIR /source
COPY . .
RUN if [ ! -d prebuilt ]; then \
        cargo build --locked --release --package harness --bin drainbench --package drainer --bin drainer && \
        mkdir prebuilt && \
        strip -o prebuilt/drainbench target/release/drainbench && \
        strip -o prebuilt/drainer target/release/drainer && \
        cp /etc/ssl/certs/ca-certificates.crt prebuilt/; \
    fi

FROM ${BASE}
# The slim Debian has none, and TLS to the two servers needs them.
COPY --from=build /source/prebuilt/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /source/prebuilt/drainbench /source/prebuilt/drainer /usr/local/bin/
# Writable by whichever user a caller picks with --user.
RUN useradd --system --uid 10001 --no-create-home --home-dir /work --shell /usr/sbin/nologin drainbench && \
    install -d -m 1777 /work
USER drainbench
WORKDIR /work
CMD ["drainbench", "--help"]
